# docker build --target=cpu  -t transformer_jax .        docker run transformer_jax
# docker build --target=cuda -t transformer_jax:cuda .   docker run --gpus=all transformer_jax:cuda
FROM python:3.12-slim AS cpu
WORKDIR /opt/transformer_jax
COPY requirements/pinned.txt requirements/pinned.txt
# --compile, whatever a base image or a configuration of pip says: PYTHONDONTWRITEBYTECODE keeps Python from doing it later.
RUN python -m pip install --compile --no-cache-dir -r requirements/pinned.txt
COPY pyproject.toml setup.py README.md LICENSE ./
COPY transformer_jax transformer_jax
COPY configs configs
RUN python -m pip install --compile --no-cache-dir --no-deps --no-build-isolation .
WORKDIR /work
ENTRYPOINT ["transformer-jax"]
CMD ["quickstart"]

FROM cpu AS cuda
RUN python -m pip install --compile --no-cache-dir --constraint /opt/transformer_jax/requirements/pinned.txt "jax[cuda13]"
