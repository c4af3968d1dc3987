package programs

import (
	"os"
	"testing"
)

// PublicFolder returns a new folder below one that is writable for all users. The test removes it.
// Its path is short enough for sockets.
func PublicFolder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("/tmp", "sl") //nolint:usetesting // the folders of tests are private
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) }) // what is left is in the temporary directory
	return folder
}
