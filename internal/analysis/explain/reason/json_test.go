package reason_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/tests/lab/shop"
)

func TestVerdictHasStableJSON(t *testing.T) {
	v := shop.Explained(t, shop.DBPorts(`{port: 1}`), "203.0.113.9 > shop/db 2/tcp")
	got, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "verdict.json", string(got)+"\n") // what other programs read: fields are only ever added
	var back reason.Verdict
	if err := json.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v, back, sameAddr); diff != "" {
		t.Errorf("after reading it back -want +got:\n%s", diff)
	}
}
