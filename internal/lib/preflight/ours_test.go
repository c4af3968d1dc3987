package preflight_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/lib/preflight"
)

// squatter is a user who is neither root nor the one who runs the test.
const squatter = 65534

// TestOursTakesOnlyPathsOfThisUser: others who could write somewhere on the way would decide what
// is read there.
func TestOursTakesOnlyPathsOfThisUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make what belongs to others")
	}
	root, err := os.MkdirTemp("/tmp", "ours") //nolint:usetesting // the folder of a test is private, which shields what is below
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) }) // what is left is in the temporary directory
	at := func(path string) string { return filepath.Join(root, path) }
	folder := func(path string, uid int, mode os.FileMode) {
		if err := os.MkdirAll(at(path), 0o755); err != nil {
			t.Fatal(err)
		}
		owned(t, at(path), uid, mode)
	}
	file := func(path string, uid int, mode os.FileMode) {
		if err := os.WriteFile(at(path), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		owned(t, at(path), uid, mode)
	}
	link := func(path, target string, uid int) {
		if err := os.Symlink(target, at(path)); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(at(path), uid, -1); err != nil {
			t.Fatal(err)
		}
	}
	owned(t, root, 0, 0o755)
	folder("good", 0, 0o755)
	folder("theirs", squatter, 0o700)
	folder("group", 0, 0o775)
	folder("all", 0, 0o777)
	folder("all/below", 0, 0o755)
	folder("tmp", 0, 0o777|os.ModeSticky)
	folder("tmp/mine", 0, 0o700)
	folder("tmp/theirs", squatter, 0o755)
	folder("private", 0, 0o700)
	folder("private/all", 0, 0o777)
	file("good/file", 0, 0o600)
	file("good/theirs", squatter, 0o600)
	file("good/open", 0, 0o666)
	link("good/link", "file", 0)
	link("ours", "good", 0)
	link("absolute", at("private/all"), 0)
	link("trap", at("tmp/theirs"), 0)
	link("tmp/trap", at("good"), squatter)
	link("loop", "loop", 0)
	link("up", "good/../tmp", 0)

	for path, want := range map[string]string{
		"good/file":         "",
		"good/new":          "",
		"missing/folder/x":  "",
		"tmp/mine/x":        "",
		"private/all/x":     "",
		"ours/file":         "",
		"absolute/x":        "",
		"good/theirs":       "belongs to user 65534",
		"good/open":         "mode 0666: others may write it",
		"good/link":         "is a symbolic link",
		"theirs/x":          "belongs to user 65534",
		"group/x":           "mode 0775: others may write there",
		"all/x":             "mode 0777: others may write there",
		"all/below/x":       "mode 0777: others may write there",
		"tmp/x":             "mode 0777: others may write there",
		"tmp/theirs/x":      "belongs to user 65534",
		"tmp/trap/x":        "belongs to user 65534",
		"trap/x":            "belongs to user 65534",
		"loop/x":            "too many symbolic links",
		"up/x":              "mode 0777: others may write there",
		"good/file/below/x": "is not a folder",
	} {
		err := preflight.Ours(at(path))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s is not believed: %v", path, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), root)):
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func owned(t *testing.T, path string, uid int, mode os.FileMode) {
	t.Helper()
	if err := os.Chown(path, uid, -1); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}
