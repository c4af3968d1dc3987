package bundle_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/bundle"
)

// part is a file with a content.
func part(name, content string) bundle.Part {
	return bundle.Part{Name: name, Get: func(context.Context) ([]byte, error) { return []byte(content), nil }}
}

var objects = part("objects.json", `{"node":"n","objects":[{"kind":"namespace","name":"shop","value":"CgRzaG9w"}]}`)

func written(t *testing.T, parts ...bundle.Part) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := bundle.Write(t.Context(), &b, time.Unix(1_700_000_000, 5), parts); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestBundleIsReadAsItWasWritten(t *testing.T) {
	broken := bundle.Part{Name: "rules.json", Get: func(context.Context) ([]byte, error) { return nil, errors.New("no\nanswer") }}
	text := written(t, objects, broken, part("log.txt", "one\n"))
	if again := written(t, objects, broken, part("log.txt", "one\n")); !bytes.Equal(text, again) {
		t.Error("the same parts give other bytes")
	}
	path := filepath.Join(t.TempDir(), "b.tgz")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := bundle.ReadFile(path)
	if err != nil || !bundle.Is(path) {
		t.Fatal(err)
	}
	if b.Objects.Node != "n" || len(b.Objects.Objects) != 1 || b.About.Missing["rules.json"] != "no; answer" || !b.About.Time.Equal(time.Unix(1_700_000_000, 0)) {
		t.Errorf("%+v", b)
	}
}

// archive is a packed tar file with some headers, each with a content of zeros.
func archive(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	packed, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(packed)
	for _, h := range headers {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.CopyN(w, zeros{}, h.Size); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(w.Close(), packed.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestBundleRefusesForeignArchives(t *testing.T) {
	good := written(t, objects)
	bomb := []tar.Header{}
	for _, name := range []string{"rules", "pods", "sets", "tables", "nodes", "status"} {
		bomb = append(bomb, tar.Header{Name: "sluice-bundle/" + name + ".json", Size: 100 << 20})
	}
	var list bytes.Buffer // an archive with much behind its end
	packed := gzip.NewWriter(&list)
	if _, err := io.CopyN(packed, zeros{}, 20<<20); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		text []byte
		want string
	}{
		"nothing":             {nil, "it is not a tar archive compressed by gzip: EOF"},
		"a text":              {[]byte("apiVersion: v1"), "it is not a tar archive compressed by gzip: "},
		"cut off":             {good[:len(good)-20], "it is cut off"},
		"cut off early":       {good[:40], "it is cut off"},
		"changed":             {append(bytes.Clone(good[:len(good)-8]), 1, 2, 3, 4, 5, 6, 7, 8), "it is damaged: gzip: invalid checksum"},
		"path traversal":      {archive(t, tar.Header{Name: "sluice-bundle/../../etc/passwd", Size: 3}), `"sluice-bundle/../../etc/passwd" is not a file of a bundle`},
		"an absolute path":    {archive(t, tar.Header{Name: "/etc/passwd", Size: 3}), `"/etc/passwd" is not a file of a bundle`},
		"a link":              {archive(t, tar.Header{Name: "sluice-bundle/objects.json", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}), `is not a file of a bundle`},
		"a device":            {archive(t, tar.Header{Name: "sluice-bundle/objects.json", Typeflag: tar.TypeChar}), `is not a file of a bundle`},
		"an unknown file":     {archive(t, tar.Header{Name: "sluice-bundle/x", Size: 3}), `"sluice-bundle/x" is not a file of a bundle`},
		"twice":               {archive(t, tar.Header{Name: "sluice-bundle/log.txt"}, tar.Header{Name: "sluice-bundle/log.txt"}), "log.txt is there twice"},
		"a large file":        {archive(t, tar.Header{Name: "sluice-bundle/log.txt", Size: bundle.MaxFile + 1}), bundle.ErrTooLarge.Error()},
		"a long description":  {archive(t, tar.Header{Name: "sluice-bundle/about.json", Size: 1<<20 + 1}), bundle.ErrTooLarge.Error()},
		"many large files":    {archive(t, bomb...), bundle.ErrTooLarge.Error()},
		"endless zeros":       {list.Bytes(), bundle.ErrTooLarge.Error()},
		"no JSON":             {archive(t, tar.Header{Name: "sluice-bundle/objects.json", Size: 5}), "objects.json: invalid character"},
		"without a beginning": {archive(t, tar.Header{Name: "sluice-bundle/log.txt", Size: 5}), "about.json is missing"},
		"without the state":   {written(t, part("log.txt", "")), "it has no state of the cluster"},
	} {
		if _, err := bundle.Read(bytes.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", name, err, tc.want)
		}
	}
}

// filled is a packed tar file of two files with a text over and over.
func filled(t *testing.T, name, begin, text string, times int, end string) []byte {
	t.Helper()
	return written(t, part(name, begin+strings.Repeat(text, times)+end))
}

// TestBundleNeedsLittleMemory has small archives of which a reader would make gigabytes.
func TestBundleNeedsLittleMemory(t *testing.T) {
	const times = 4 << 20
	for _, text := range []string{"{},", "null,", `{"name":""},`} {
		b := filled(t, "objects.json", `{"objects":[`, text, times, `{}]}`)
		var before, behind runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := bundle.Read(bytes.NewReader(b))
		runtime.ReadMemStats(&behind)
		most := 4*uint64(times*len(text)) + 64<<20
		if got := behind.TotalAlloc - before.TotalAlloc; err == nil || got > most {
			t.Errorf("%q: %v, after %d MiB, want %d", text, err, got>>20, most>>20)
		}
	}
}

// TestBundleErrorsAreShort has archives whose texts get into errors.
func TestBundleErrorsAreShort(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	fails := bundle.Part{Name: "objects.json", Get: func(context.Context) ([]byte, error) { return nil, errors.New(long) }}
	for name, text := range map[string][]byte{
		"what is missing": written(t, fails),
		"a time":          written(t, part("about.json", `{"time":"`+long+`"}`)),
		"a number":        written(t, part("objects.json", `{"node":1`+strings.Repeat("0", 1<<20)+`}`)),
		"a kind":          written(t, part("objects.json", `{"objects":[{"kind":1`+strings.Repeat("0", 1<<20)+`}]}`)),
	} {
		if _, err := bundle.Read(bytes.NewReader(text)); err == nil || len(err.Error()) > 2000 {
			t.Errorf("%s: %.200v", name, err)
		}
	}
}

func TestBundleIsNoPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if bundle.Is(path) {
		t.Error("a pipe without a writer is a bundle")
	}
}

func TestBundleRefusesUnknownFiles(t *testing.T) {
	if _, err := bundle.Write(t.Context(), io.Discard, time.Now(), []bundle.Part{objects, part("new.json", "{}")}); err == nil || !strings.Contains(err.Error(), "new.json") {
		t.Errorf("error %v", err)
	}
}

func TestBundleIsBounded(t *testing.T) {
	large := strings.Repeat("x", bundle.MaxFile+1)
	about, err := bundle.Write(t.Context(), io.Discard, time.Now(), []bundle.Part{part("log.txt", large), objects})
	if err != nil || !strings.Contains(about.Missing["log.txt"], "more than there may be") {
		t.Errorf("%v, %+v", err, about)
	}
}

func FuzzBundle(f *testing.F) {
	var b bytes.Buffer
	if _, err := bundle.Write(context.Background(), &b, time.Unix(0, 0), []bundle.Part{objects}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, text []byte) {
		if b, err := bundle.Read(bytes.NewReader(text)); err == nil && b.About.Format != 1 {
			t.Errorf("%q is read as %+v", text, b)
		}
	})
}
