package version

import (
	"runtime"
	"strings"
	"testing"
)

func TestGetReadsBuildInfo(t *testing.T) {
	info := Get()
	if info.Go != runtime.Version() || !strings.HasPrefix(info.String(), "sluice "+info.Version) {
		t.Errorf("got %v", info)
	}
}
