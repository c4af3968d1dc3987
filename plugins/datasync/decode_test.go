package datasync

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

const prefix = model.DefaultPrefix

// newDecoder returns a decoder and the list that its problems go to.
func newDecoder() (*decoder, *[]api.Problem) {
	problems := new([]api.Problem)
	return &decoder{
		prefix: prefix,
		marker: model.MarkerKey(prefix),
		known:  map[string][]byte{},
		bad:    map[string]unusual{},
		report: func(p api.Problem) { *problems = append(*problems, p) },
	}, problems
}

func entry(t testing.TB, name string) model.Entry {
	t.Helper()
	b, err := model.Encode(pod(name, "1"))
	if err != nil {
		t.Fatal(err)
	}
	return model.Entry{Key: model.Key(prefix, podID(name)), Value: b}
}

func garbage(name string) model.Entry {
	return model.Entry{Key: model.Key(prefix, podID(name)), Value: []byte{0xff, 0xff}}
}

func gone(name string) model.Entry { return model.Entry{Key: model.Key(prefix, podID(name))} }

func sameDeltas(t *testing.T, got []model.Delta, want ...model.Delta) {
	t.Helper()
	if len(want) == 0 && len(got) == 0 {
		return
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("deltas: want - got +\n%s", diff)
	}
}

func TestDecoderDropsWritesWithoutChange(t *testing.T) {
	d, _ := newDecoder()
	sameDeltas(t, d.deltas([]model.Entry{entry(t, "a")}), up("a", "1"))
	sameDeltas(t, d.deltas([]model.Entry{entry(t, "a")}))
	sameDeltas(t, d.deltas([]model.Entry{gone("b")}))
	sameDeltas(t, d.snapshot([]model.Entry{entry(t, "a")}), up("a", "1")) // a resync is whole
	if d.unchanged != 1 {
		t.Errorf("%d writes counted as unchanged, want 1", d.unchanged)
	}
}

func TestDecoderKeepsLastValidValue(t *testing.T) {
	d, problems := newDecoder()
	sameDeltas(t, d.snapshot([]model.Entry{entry(t, "a"), garbage("b")}), up("a", "1"))
	sameDeltas(t, d.deltas([]model.Entry{garbage("a")}))
	sameDeltas(t, d.snapshot([]model.Entry{garbage("a"), garbage("b")}), up("a", "1"))
	sameDeltas(t, d.snapshot([]model.Entry{garbage("a")}), up("a", "1"))
	if len(*problems) != 2 || len(d.bad) != 1 {
		t.Errorf("%d problems were reported and %d are left, want 2 and 1: %v", len(*problems), len(d.bad), *problems)
	}
	sameDeltas(t, d.deltas([]model.Entry{entry(t, "a")})) // as it is in force
	if len(d.bad) != 0 {
		t.Errorf("problems are left: %v", d.bad)
	}
	sameDeltas(t, d.deltas([]model.Entry{garbage("a"), gone("a")}), down("a"))
	if len(d.bad) != 0 || len(d.known) != 0 {
		t.Errorf("a deleted key is still known: %v %v", d.bad, d.known)
	}
}

func TestDecoderReportsProblemOncePerValue(t *testing.T) {
	d, problems := newDecoder()
	strange := model.Entry{Key: prefix + "/k8s/pod/only-two", Value: []byte("x")}
	other := entry(t, "a")
	other.Key = model.Key(prefix, podID("b"))
	for range 3 {
		sameDeltas(t, d.deltas([]model.Entry{strange, garbage("a"), other}))
		sameDeltas(t, d.snapshot([]model.Entry{strange, garbage("a"), other}))
	}
	if len(*problems) != 3 || d.reported != 3 {
		t.Fatalf("%d problems, want 3: %v", len(*problems), *problems)
	}
	for i, want := range []api.Problem{
		{Source: strange.Key, Reason: "want"},
		{Source: garbage("a").Key, Object: "Pod shop/a", Reason: "decode"},
		{Source: other.Key, Object: "Pod shop/b", Reason: "the value is of Pod shop/a"},
	} {
		got := (*problems)[i]
		if got.Source != want.Source || got.Object != want.Object || !strings.Contains(got.Reason, want.Reason) {
			t.Errorf("problem %d is %+v, want %+v", i, got, want)
		}
	}
	worse := garbage("a")
	worse.Value = []byte{0xfe}
	d.deltas([]model.Entry{worse})
	if len(*problems) != 4 {
		t.Errorf("another bad value was not reported: %v", *problems)
	}
}

func TestDecoderSkipsMarker(t *testing.T) {
	d, problems := newDecoder()
	marker := model.Entry{Key: d.marker, Value: []byte("{}")}
	sameDeltas(t, d.snapshot([]model.Entry{marker, entry(t, "a")}), up("a", "1"))
	sameDeltas(t, d.deltas([]model.Entry{marker, {Key: d.marker}}))
	if len(*problems) != 0 || len(d.known) != 1 || len(d.bad) != 0 {
		t.Errorf("problems %v, known %v, bad %v", *problems, d.known, d.bad)
	}
}

// FuzzAnyEntry feeds arbitrary keys and values: the last valid value stays in force, and a delta
// equals the content of the store.
func FuzzAnyEntry(f *testing.F) {
	good, err := model.Encode(pod("a", "1"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(model.Key(prefix, podID("a")), good, true)
	f.Add(model.Key(prefix, podID("b")), good, false)
	f.Add(prefix+"/k8s/namespace/_/shop", []byte{0x0a, 0x04, 's', 'h', 'o', 'p'}, true)
	f.Add("", []byte{}, false)
	f.Fuzz(func(t *testing.T, key string, value []byte, watched bool) {
		d, problems := newDecoder()
		first := entry(t, "first")
		d.deltas([]model.Entry{first})
		var deltas []model.Delta
		e := model.Entry{Key: key, Value: append([]byte{}, value...)}
		if watched {
			deltas = d.deltas([]model.Entry{e})
		} else {
			deltas = d.snapshot([]model.Entry{first, e})[1:]
		}
		if key == first.Key {
			return
		}
		if len(deltas)+len(*problems) != 1 {
			t.Fatalf("one entry gave %d deltas and %d problems", len(deltas), len(*problems))
		}
		if !bytes.Equal(d.known[first.Key], first.Value) {
			t.Error("another object is not in force any more")
		}
		if len(deltas) == 1 && model.Key(prefix, deltas[0].ID) != key {
			t.Errorf("the delta of key %q is for %s", key, deltas[0].ID)
		}
	})
}
