FROM python:3.12-slim AS build
WORKDIR /source
COPY . .
RUN pip install --no-cache-dir --prefix /installed --constraint constraints.txt '.[all,postgres]'

FROM python:3.12-slim
COPY --from=build /installed /usr/local
RUN useradd --create-home --uid 1000 commonplace && install -d -m 0700 -o 1000 -g 1000 /data
USER commonplace
ENV COMMONPLACE_DATA=/data
VOLUME /data
EXPOSE 3847
ENTRYPOINT ["commonplace"]
CMD ["serve", "--host", "0.0.0.0"]
