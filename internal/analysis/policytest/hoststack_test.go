package policytest

import (
	"log/slog"
	"testing"
)

func TestHostStackPassesShopExample(t *testing.T) {
	files, err := Load(shopFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := NewHostStack(slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	report := mustRun(t, NewRunner(s), files[0])
	if got := report.Subjects[0]; !report.OK() || got.Unasked == 0 || got.Probes+got.Unasked != report.Probes {
		t.Errorf("%d of %d probes were asked, %d not:\n%s", got.Probes, report.Probes, got.Unasked, written(t, report))
	}
}
