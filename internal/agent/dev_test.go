package agent

import (
	"bytes"
	"strings"
	"testing"
)

func TestDevWithoutItsProgramNamesIt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var out bytes.Buffer
	code := Main([]string{"dev", "--manifests", t.TempDir()}, &out, &out)
	if code != 1 || !strings.Contains(out.String(), "sluice-agent: dev needs the program sluice-dev") {
		t.Errorf("exit code %d, %s", code, out.String())
	}
}
