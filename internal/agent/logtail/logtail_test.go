package logtail_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/sluice-net/sluice/internal/agent/logtail"
)

func TestTailKeepsLastWholeLines(t *testing.T) {
	var all bytes.Buffer
	tail := logtail.New(&all)
	if got := tail.Last(); len(got) != 0 {
		t.Errorf("an empty log has %q", got)
	}
	for i := range 100_000 {
		if _, err := fmt.Fprintf(tail, "line %d of a log that is long\n", i); err != nil {
			t.Fatal(err)
		}
	}
	last := tail.Last()
	if !bytes.HasSuffix(all.Bytes(), last) || !bytes.HasPrefix(last, []byte("line ")) || len(last) > 1<<20 || len(last) < 1<<20-100 {
		t.Errorf("%d bytes, which begin with %.40q", len(last), last)
	}
}

// TestTailDropsWholeLines looks just after lines were forgotten, when no more is kept
// than is returned.
func TestTailDropsWholeLines(t *testing.T) {
	tail := logtail.New(io.Discard)
	if _, err := tail.Write(bytes.Repeat([]byte("a line\n"), 300_001)); err != nil { // more than two megabytes
		t.Fatal(err)
	}
	if last := tail.Last(); !bytes.HasPrefix(last, []byte("a line\n")) || len(last) > 1<<20 || len(last) < 1<<20-100 {
		t.Errorf("%d bytes, which begin with %.20q", len(last), last)
	}
}
