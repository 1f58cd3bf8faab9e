// Package remote has the clients of Valkey (or Redis) and S3 servers; importing it registers them with package values.
package remote

import (
	"context"

	"terrace/kvmanager/values"
)

func init() {
	values.Register("valkey", func(_ context.Context, place string, a values.Access) (values.Server, error) {
		return openValkey(place, a.User, a.Password)
	})
	values.Register("s3", func(ctx context.Context, place string, a values.Access) (values.Server, error) {
		return openS3(ctx, place, a.AccessKey, a.SecretKey, a.Region)
	})
}
