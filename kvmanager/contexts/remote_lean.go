//go:build lean

package contexts

import (
	"context"
	"fmt"
)

// A lean build has no clients of valkey and S3 servers: their tiers are refused by name.

func openValkey(_, _, _ string) (blobStore, error) {
	return nil, fmt.Errorf("contexts: tier valkey=: this binary was built with -tags lean, which leaves its client out: %w", ErrSpec)
}

func openS3(_ context.Context, _, _, _, _ string) (blobStore, error) {
	return nil, fmt.Errorf("contexts: tier s3=: this binary was built with -tags lean, which leaves its client out: %w", ErrSpec)
}
