package statefile_test

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-net/sluice/plugins/statefile"
)

// FuzzLoad: whatever a file holds before its sum, it is refused or has as many entries
// as it says, each with a value.
func FuzzLoad(f *testing.F) {
	for _, s := range []string{
		"", "sluice state 1\n", "sluice state 1\n{}\n", "sluice state 1\n{\"root\":\"/a/\"}\n",
		"sluice state 1\n{\"root\":\"/a/\",\"entries\":1}\n\x04/a/1\x03one", "sluice state 1\n{\"root\":\"/a/\",\"entries\":1}\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x",
		"sluice state 1\n{\"root\":\"/a/\",\"entries\":-1}\n\x04/a/1",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		sum := sha256.Sum256(body)
		path := filepath.Join(t.TempDir(), "state")
		if err := os.WriteFile(path, append(body, sum[:]...), 0o600); err != nil {
			t.Fatal(err)
		}
		h, entries, err := statefile.Load(path, "/a/")
		if err != nil {
			return
		}
		if len(entries) != h.Entries || h.Root != "/a/" {
			t.Errorf("%q gives %+v and %d entries", body, h, len(entries))
		}
		for _, e := range entries {
			if e.Value == nil {
				t.Errorf("%q gives no value to %q", body, e.Key)
			}
		}
	})
}
