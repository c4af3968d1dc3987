package decode

import (
	"io"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
)

// endless is a reader that never ends, and counts what was taken of it.
type endless struct{ taken int }

func (e *endless) Read(p []byte) (int, error) {
	clear(p)
	e.taken += len(p)
	return len(p), nil
}

func TestReadStopsAtFirstNULByte(t *testing.T) {
	zero := &endless{}
	p := Reading{}.Read(io.MultiReader(strings.NewReader("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n"), zero), "f")
	if len(p.Objects) > 0 || len(p.Refusals) != 1 || zero.taken > 1<<20 {
		t.Fatalf("%d objects, %v after %d bytes", len(p.Objects), p.Refusals, zero.taken)
	}
	const want = "f: cannot be read: it has NUL bytes, which no manifest has: it is not text"
	if d := cmp.Diff(want, p.Refusals[0].Problem.Error()); d != "" {
		t.Error(d)
	}
}

func TestReadTakesUTF16(t *testing.T) {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune("\ufeffapiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n")) {
		_, _ = b.Write([]byte{byte(unit), byte(unit >> 8)}) // a strings.Builder accepts every write
	}
	if p := (Reading{}).Read(strings.NewReader(b.String()), "f"); len(p.Objects) != 1 || len(p.Refusals) > 0 {
		t.Errorf("%d objects, %v", len(p.Objects), p.Refusals)
	}
}
