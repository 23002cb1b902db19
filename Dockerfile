# docker build --target text -t capbench:text .    # text metrics with SPICE, statistics, figures
# docker build --target full -t capbench:full .    # all extras, PyTorch for the CPU
# docker run --rm --user "$(id -u)" -v capbench:/capbench -v "$PWD:/work" capbench:text correlate -d ratings.csv
FROM python:3.12-slim AS wheel
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY capbench capbench
COPY configs configs
COPY data/sample data/sample
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim AS text
COPY --from=wheel /wheels /wheels
# The volume keeps scores, imported data and SPICE's parser ('doctor --install spice'). Any user may write to it.
RUN pip install --no-cache-dir "$(echo /wheels/*.whl)[spice,figures,frames]" \
 && install -d -m 1777 /capbench /capbench/cache /capbench/home /work
ENV HOME=/capbench CAPBENCH_CACHE=/capbench/cache CAPBENCH_HOME=/capbench/home
VOLUME /capbench
WORKDIR /work
USER 1000
ENTRYPOINT ["capbench"]

FROM text AS full
USER root
RUN pip install --no-cache-dir torch torchvision --index-url https://download.pytorch.org/whl/cpu \
 && pip install --no-cache-dir "$(echo /wheels/*.whl)[all]"
USER 1000
