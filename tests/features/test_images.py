from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from capbench.features.images import ImageFile, decode, images_in


def test_pictures_of_any_mode_become_rgb(tmp_path: Path) -> None:
    red = Image.new("RGB", (6, 4), (200, 10, 20))
    for mode in ("RGB", "RGBA", "P", "L", "CMYK", "1"):
        path = tmp_path / f"{mode}.{'tif' if mode == 'CMYK' else 'png'}"
        red.convert(mode).save(path)
        pixels = decode(path)
        assert pixels.shape == (4, 6, 3)
        assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(decode(tmp_path / "RGBA.png")[0, 0], (200, 10, 20))
    grey = decode(tmp_path / "L.png")
    assert (grey[..., 0] == grey[..., 2]).all()


def test_pictures_are_turned_as_their_camera_says(tmp_path: Path) -> None:
    pixels = np.zeros((4, 8, 3), np.uint8)
    pixels[:, :4] = 255  # the left half is white
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    turned = decode(tmp_path / "a.png")
    assert turned.shape == (8, 4, 3)
    assert turned[0].min() == 255
    assert turned[-1].max() == 0


def test_folders_are_searched_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.JPG", "a.png", "sub/c.webp", ".hidden.png", ".trash/d.png", "note.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert images_in(tmp_path) == [
        ImageFile("a", tmp_path / "a.png"),
        ImageFile("b", tmp_path / "b.JPG"),
        ImageFile("c", tmp_path / "sub" / "c.webp"),
    ]
