package manifests

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/tests/lab/samples"
)

// writeFiles writes files below a directory.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func checkLoad(t *testing.T, dir string, got Load, want []string, problems []string, files, skipped int) {
	t.Helper()
	var objs []string
	for _, o := range got.Objects {
		objs = append(objs, o.ID().Name+" "+strings.ReplaceAll(o.Source, dir, "DIR"))
	}
	if diff := cmp.Diff(want, objs); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	found := samples.Texts(got.Problems)
	for i := range found {
		found[i] = strings.ReplaceAll(found[i], dir, "DIR")
	}
	if diff := cmp.Diff(problems, found); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if got.Files != files || len(got.Skipped) != skipped {
		t.Errorf("%d files and %d skipped, want %d and %d", got.Files, len(got.Skipped), files, skipped)
	}
}

func TestLoadReadsDirectoryInPathOrder(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"b.yaml": samples.Namespace("b"), "a.yml": samples.Namespace("a"), "sub/deep/c.json": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"c"}}`,
		"sub/d.yaml":   samples.Namespace("d") + "---\napiVersion: v1\nkind: Secret\n",
		".hidden.yaml": "bad", ".git/x.yaml": "bad", "b.yaml~": "bad", "#b.yaml#": "bad", ".#b.yaml": "bad", "b.yaml.swp": "bad", "README.md": "bad",
		"z.yaml": samples.Namespace("a"),
	})
	for name, target := range map[string]string{"link.yaml": "b.yaml", "linked": "sub", "lost.yaml": "nowhere"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "dir.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := LoadFiles([]string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkLoad(t, dir, got, []string{"a DIR/a.yml", "b DIR/b.yaml", "d DIR/sub/d.yaml (document 1)", "c DIR/sub/deep/c.json"}, []string{
		"DIR/linked: cannot be read: it is a symbolic link to a directory, which is not followed",
		"DIR/lost.yaml: cannot be read: no such file or directory",
		"DIR/link.yaml: Namespace b: is defined in DIR/b.yaml already: that one stays, remove one of them",
		"DIR/z.yaml: Namespace a: is defined in DIR/a.yml already: that one stays, remove one of them",
	}, 6, 1)
}

func TestLoadReadsFilesInGivenOrder(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"one.txt": samples.Namespace("a"), "two.yaml": samples.Namespace("b")})
	one, two := filepath.Join(dir, "one.txt"), filepath.Join(dir, "two.yaml")
	got, err := LoadFiles([]string{two, Stdin, one}, strings.NewReader(samples.Namespace("c")+"---\n"+samples.Namespace("b")))
	if err != nil {
		t.Fatal(err)
	}
	checkLoad(t, dir, got, []string{"b DIR/two.yaml", "c stdin (document 1)", "a DIR/one.txt"}, []string{
		"stdin (document 2): Namespace b: is defined in DIR/two.yaml already: that one stays, remove one of them",
	}, 3, 0)
}

func TestLoadReportsUnreadablePaths(t *testing.T) {
	for name, c := range map[string]struct {
		paths []string
		want  string
	}{
		"missing":     {[]string{"/nowhere/x.yaml"}, "load manifests: stat /nowhere/x.yaml: no such file or directory"},
		"a device":    {[]string{"/dev/zero"}, "load manifests: /dev/zero: it is not a regular file, and no pipe"},
		"stdin twice": {[]string{Stdin, Stdin}, "the standard input can be read once only"},
	} {
		got, err := LoadFiles(c.paths, strings.NewReader(samples.Namespace("a")))
		if err == nil || err.Error() != c.want || len(got.Objects) > 0 {
			t.Errorf("%s: %v, %v; want %s", name, got, err, c.want)
		}
	}
}

// TestLoadReadsNamedPipe: only where the user named it; one in a directory may have no writer.
func TestLoadReadsNamedPipe(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- os.WriteFile(pipe, []byte(samples.Namespace("a")), 0o600) }()
	got, err := LoadFiles([]string{pipe}, nil)
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	checkLoad(t, dir, got, []string{"a DIR/pipe.yaml"}, nil, 1, 0)
	if _, err := readRegular(pipe); !errors.Is(err, errNotRegular) {
		t.Errorf("where no pipe was listed: %v", err)
	}
}

func TestLoadKeepsFirstDuplicate(t *testing.T) {
	in := "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {nr: one}}\n---\n" +
		"apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: default, labels: {nr: two}}\n"
	objs, problems := Decode(strings.NewReader(in), "f")
	if len(objs) != 1 || objs[0].Object.(*corev1.Pod).Labels["nr"] != "one" {
		t.Errorf("objects: %v", objs)
	}
	want := []string{"f (document 2): Pod default/web: is defined in f (document 1) already: that one stays, remove one of them"}
	if diff := cmp.Diff(want, samples.Texts(problems)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestImpliedNamespacesAreUndefinedOnes(t *testing.T) {
	objs, problems := Decode(strings.NewReader(strings.Join([]string{
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: a}}\n",
		samples.Policy("{podSelector: {}}"), samples.Pod(""),
		"apiVersion: v1\nkind: Pod\nmetadata: {name: b, namespace: back}\n",
	}, "---\n")), "f")
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	implied := kinds.ImpliedNamespaces(objs)
	if diff := cmp.Diff([]string{"Namespace back", "Namespace default"}, samples.IDs(implied)); diff != "" {
		t.Fatalf("implied (-want +got):\n%s", diff)
	}
	if implied[0].Source != "f (document 4)" {
		t.Errorf("source %q", implied[0].Source)
	}
	if diff := cmp.Diff(map[string]string{"kubernetes.io/metadata.name": "back"}, implied[0].Object.(*corev1.Namespace).Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if again := kinds.ImpliedNamespaces(slices.Concat(objs, implied)); len(again) > 0 {
		t.Errorf("implied again: %v", samples.IDs(again))
	}
}

func TestLoadNamesSkippedObjectsLikeKubectl(t *testing.T) {
	load, err := LoadFiles([]string{Stdin}, strings.NewReader("{apiVersion: apps/v1, kind: Deployment, metadata: {name: foo}}\n---\n{apiVersion: v1, kind: SecretList, items: []}\n---\n{apiVersion: v1, kind: Secret, metadata: {name: \"a\\nb\"}}\n"))
	if diff := cmp.Diff([]string{"deployment.apps/foo", "secretlist", `"secret/a\nb"`}, load.Skipped); diff != "" || err != nil {
		t.Errorf("%v, skipped (-want +got):\n%s", err, diff)
	}
}
