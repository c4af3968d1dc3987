package agent

import (
	"bytes"
	goflag "flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = goflag.Bool("update", false, "write the golden files anew")

// TestHelpIsAsItWas holds every flag, its default and what is said of it, in their order.
func TestHelpIsAsItWas(t *testing.T) {
	t.Setenv("SLUICE_API_SOCKET", "/run/sluice/agent.sock") // else the default is that of the user
	for _, command := range []string{"run", "check", "dev", "cleanup", "install-cni"} {
		var out bytes.Buffer
		if code := Main([]string{command, "--help"}, &out, &out); code != 0 {
			t.Errorf("%s --help: exit code %d", command, code)
		}
		file := filepath.Join("testdata", "help", command+".txt")
		if *update {
			if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), out.String()); d != "" {
			t.Errorf("%s --help (-want +got):\n%s", command, d)
		}
	}
}
