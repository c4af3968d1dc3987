package bench

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTableOfMedians(t *testing.T) {
	const output = `goos: linux
pkg: example
BenchmarkEvent/local-pod/acl-2   	     100	   1500000 ns/op	   900.5 cpu-us/op	  12 B/op
BenchmarkEvent/remote/acl-2      	     100	   999 ns/op	   1.25 cpu-us/op	  3 B/op
    log_test.go:1: BenchmarkEvent says something here
BenchmarkEvent/local-pod/acl-2   	     100	   2500000 ns/op	   900.5 cpu-us/op	  12 B/op
BenchmarkEvent/local-pod/acl-2   	     100	   9900000 ns/op	   900.5 cpu-us/op	  12 B/op
BenchmarkInit-2   	     1	   2500000000 ns/op	 120 decode-cpu-ms	 22 rules	 7 add:p50-us	 0.25 MiB-live
PASS
`
	const want = `### Event

| | runs | wall | cpu/op | B/op |
|---|---|---|---|---|
| local-pod/acl | 3 | 2.5 ms | 900 µs | 12 |
| remote/acl | 1 | 999 ns | 1.25 µs | 3 |

### Init

| | runs | wall | p50 | MiB-live | decode-cpu | rules |
|---|---|---|---|---|---|---|
| Init | 1 | 2.5 s |  | 0.25 | 120 ms | 22 |
| add | 1 |  | 7 µs |  |  |  |

`
	var got strings.Builder
	if err := Table(&got, strings.NewReader(output)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("want - got +\n%s", diff)
	}
}

func TestTableRefusesFailedRuns(t *testing.T) {
	for name, output := range map[string]string{
		"a benchmark whose check failed": "BenchmarkA-2 1 5 ns/op\n--- FAIL: BenchmarkB\n",
		"nothing":                        "PASS\n",
		"a value that is no number":      "BenchmarkA-2 1 five ns/op\n",
	} {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			if err := Table(&got, strings.NewReader(output)); err == nil {
				t.Errorf("the table is %q", got.String())
			}
		})
	}
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Read([]byte) (int, error)  { return 0, errBroken }
func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestTableReturnsReadAndWriteErrors(t *testing.T) {
	if err := Table(&strings.Builder{}, broken{}); !errors.Is(err, errBroken) {
		t.Errorf("reading: %v", err)
	}
	if err := Table(broken{}, strings.NewReader("BenchmarkA-2 1 5 ns/op\n")); !errors.Is(err, errBroken) {
		t.Errorf("writing: %v", err)
	}
}
