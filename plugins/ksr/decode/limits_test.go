package decode

import (
	"fmt"
	"strings"
	"testing"
)

// TestReadDoesNotCountWhiteSpace: formatting does not count towards the size.
func TestReadDoesNotCountWhiteSpace(t *testing.T) {
	object := []byte(`{"a b":` + strings.Repeat("\n", maxObject) + `"c \" d"  }`)
	if got, want := compactSize(object), len(`{"a b":"c \" d"}`); got != want {
		t.Errorf("the size is %d, want %d", got, want)
	}
}

// A list of very many small items is read item by item, as far as the limit.
func TestReadReportsTooManyItems(t *testing.T) {
	if testing.Short() {
		t.Skip("reads a million documents")
	}
	list := `{"apiVersion":"v1","kind":"List","items":[` + strings.Repeat("0,", maxDocuments) + "0]}"
	p := Reading{}.Bytes([]byte(list), "f")
	if len(p.Refusals) != maxRefusals+1 {
		t.Fatalf("%d refusals, want %d", len(p.Refusals), maxRefusals+1)
	}
	if got, want := p.Refusals[maxRefusals].Problem.Reason, fmt.Sprintf("has %d more documents or objects that cannot be used", maxDocuments-maxRefusals+1); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestReadReportsTooManyDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("reads a million documents")
	}
	p := Reading{}.Bytes([]byte(strings.Repeat("{}\n", maxDocuments+2)), "f")
	if got, want := p.Refusals[0].Problem.Reason, "has more documents than the limit of 1000000, the rest is not read: split it"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
