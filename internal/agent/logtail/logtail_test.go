package logtail_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/sluice-net/sluice/internal/agent/logtail"
)

func TestTailKeepsTheLastWholeLines(t *testing.T) {
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
