package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"terrace/internal/storage"
	"terrace/kvmanager/values"
)

// s3Store keeps records as objects terrace/1/KEY of a bucket, which must be there. Reading changes nothing there, so the oldest
// written go first.
type s3Store struct {
	c         *minio.Client
	transport *http.Transport
	bucket    string
	prefix    string
}

func openS3(ctx context.Context, place, access, secret, region string) (*s3Store, error) {
	u, err := url.Parse(place)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") == "" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("contexts: s3: %q: want URL/BUCKET, as https://host:9000/bucket: %w", place, values.ErrPlace)
	}
	bucket, folder, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	s := &s3Store{bucket: bucket, prefix: strings.TrimPrefix(folder+"/terrace/1/", "/")}
	s.transport = &http.Transport{DialContext: (&net.Dialer{Timeout: time.Second}).DialContext, ResponseHeaderTimeout: values.OpTimeout, TLSHandshakeTimeout: values.OpTimeout,
		MaxIdleConnsPerHost: 2 * values.Parallel, IdleConnTimeout: time.Minute, Proxy: http.ProxyFromEnvironment, DisableCompression: true}
	if region == "" {
		region = "us-east-1"
	}
	o := &minio.Options{Creds: credentials.NewStaticV4(access, secret, ""), Secure: u.Scheme == "https", Transport: s.transport, Region: region, MaxRetries: 1, BucketLookup: minio.BucketLookupPath}
	if s.c, err = minio.New(u.Host, o); err != nil {
		return nil, fmt.Errorf("contexts: s3: %w", err)
	}
	ctx, cancel := values.OpContext(ctx, 0)
	defer cancel()
	switch ok, err := s.c.BucketExists(ctx, bucket); {
	case err != nil:
		return nil, fmt.Errorf("contexts: s3: %w", err)
	case !ok:
		return nil, fmt.Errorf("contexts: s3: there is no bucket %s: make it first", bucket)
	}
	return s, nil
}

// wrapS3 turns an answer of the server's into ours.
func wrapS3(err error) error {
	switch code := minio.ToErrorResponse(err).Code; {
	case err == nil:
		return nil
	case code == minio.NoSuchKey || code == "NotFound":
		return values.ErrMiss
	}
	return fmt.Errorf("contexts: s3: %w", err)
}

func (s *s3Store) Get(ctx context.Context, name string, most int64) ([]byte, error) {
	o := minio.GetObjectOptions{}
	if most > 0 {
		if err := o.SetRange(0, most-1); err != nil {
			return nil, err
		}
	}
	body, info, _, err := minio.Core{Client: s.c}.GetObject(ctx, s.bucket, s.prefix+name, o)
	if err != nil {
		return nil, wrapS3(err)
	}
	defer body.Close()
	if info.Size < 0 || info.Size > values.MaxBytes {
		return nil, fmt.Errorf("contexts: s3: object of %d bytes: %w", info.Size, values.ErrDamaged)
	}
	b := storage.Aligned(int(info.Size))
	if _, err := io.ReadFull(body, b); err != nil {
		return nil, fmt.Errorf("contexts: s3: %w", err)
	}
	return b, nil
}

func (s *s3Store) Put(ctx context.Context, name string, value []byte) error {
	_, err := s.c.PutObject(ctx, s.bucket, s.prefix+name, bytes.NewReader(value), int64(len(value)), minio.PutObjectOptions{ContentType: "application/octet-stream", DisableMultipart: true})
	return wrapS3(err)
}

func (s *s3Store) Delete(ctx context.Context, list []values.Value) error {
	var errs []error
	for _, b := range list {
		if err := wrapS3(s.c.RemoveObject(ctx, s.bucket, s.prefix+b.Name, minio.RemoveObjectOptions{})); !errors.Is(err, values.ErrMiss) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *s3Store) There(ctx context.Context, names []string) ([]bool, error) {
	out := make([]bool, len(names))
	for i, n := range names {
		_, err := s.c.StatObject(ctx, s.bucket, s.prefix+n, minio.StatObjectOptions{})
		if err = wrapS3(err); err != nil && !errors.Is(err, values.ErrMiss) {
			return nil, err
		}
		out[i] = err == nil
	}
	return out, nil
}

func (s *s3Store) Index(ctx context.Context) (out []values.Value, err error) {
	for o := range s.c.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, wrapS3(o.Err)
		}
		out = append(out, values.Value{Name: strings.TrimPrefix(o.Key, s.prefix), Bytes: o.Size, Used: o.LastModified})
	}
	return out, nil
}

func (s *s3Store) Used(context.Context, []values.Value) error { return nil }

func (s *s3Store) Close() error { s.transport.CloseIdleConnections(); return nil }
