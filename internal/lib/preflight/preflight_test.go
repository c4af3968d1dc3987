package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/internal/lib/term"
)

// named is a check with a finding.
func named(name string, fatal bool, f Finding) Check {
	return Check{name, fatal, func(context.Context) Finding { return f }}
}

var list = []Check{
	named("a", true, Fine("at %d", 1)),
	named("skipped", true, Finding{}),
	named("b", false, Warn(errors.Join(errors.New("one"), errors.New("two")), "mend it")),
	named("c", false, Fail(errors.New("broken"), "")),
}

func TestReportSeparatesErrorsFromWarnings(t *testing.T) {
	report := Run(t.Context(), list)
	if err := report.Err(); err != nil || !report.Failed() {
		t.Errorf("failed %t, %v", report.Failed(), err)
	}
	var lines []string
	for _, r := range report.Problems() {
		lines = append(lines, r.Name+"="+r.Line())
	}
	if d := cmp.Diff([]string{"b=one; two: mend it", "c=broken"}, lines); d != "" {
		t.Error(d)
	}
	fatal := named("d", true, Fail(errors.New("no socket"), "choose another"))
	if err := Run(t.Context(), append(list, fatal)).Err(); err == nil || err.Error() != "no socket: choose another" {
		t.Errorf("%v", err)
	}
	if err := Run(t.Context(), append(list, fatal, fatal, fatal)).Err(); err == nil || err.Error() != "no socket: choose another (and 2 more: see sluice-agent check)" {
		t.Errorf("%v", err)
	}
	if Run(t.Context(), list[:3]).Failed() {
		t.Error("a warning fails")
	}
}

func TestReportIsTableOrFields(t *testing.T) {
	report := Run(t.Context(), list)
	var out strings.Builder
	report.Print(term.NewWriter(&out))
	want := "CHECK  RESULT   DETAIL AND REMEDY\n" +
		"a      ok       at 1\n" +
		"b      warning  one; two\n" +
		"                -> mend it\n" +
		"c      error    broken\n"
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
	b, err := json.Marshal(report[1])
	if want := `{"check":"b","result":"warning","detail":"one; two","remedy":"mend it"}`; err != nil || string(b) != want {
		t.Errorf("%s, %v, want %s", b, err, want)
	}
}

func TestRunBoundsEveryCheckAndEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	report := Run(ctx, []Check{
		{Name: "bounded", Find: func(ctx context.Context) Finding {
			if _, ok := ctx.Deadline(); !ok {
				return Fail(errors.New("it has no deadline"), "")
			}
			cancel()
			return Fine("")
		}},
		named("after the end", false, Fine("")),
	})
	if len(report) != 1 || report.Failed() {
		t.Errorf("%+v", report)
	}
}

func TestFolderMustBeWritable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                              "",
		filepath.Join(dir, "not", "yet"): "",
		file:                             file + " is not a folder",
		filepath.Join(file, "below"):     "not a directory",
	} {
		err := Folder(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("a look made something: %v, %v", entries, err)
	}
}

func TestAddressMustBeFree(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken := l.Addr().String()
	if err := Address(t.Context(), taken); err == nil || err.Error() != "another process listens on "+taken+": address already in use" {
		t.Errorf("%v", err)
	}
	if err := errors.Join(l.Close(), Address(t.Context(), taken)); err != nil {
		t.Errorf("a free address: %v", err)
	}
	if err := Address(t.Context(), "127.0.0.1:port"); err == nil {
		t.Error("a port that is none is free")
	}
}
