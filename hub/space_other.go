//go:build !linux

package hub

// checkSpace leaves it to the write to fail where the free space is not asked for.
func checkSpace(string, int64) error { return nil }
