package model_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api/model"
)

func TestMarkerKeyIsBelowRootAndNoObject(t *testing.T) {
	key := model.MarkerKey(model.DefaultPrefix)
	if _, err := model.ParseKey(model.DefaultPrefix, key); err == nil || !strings.HasPrefix(key, model.Root(model.DefaultPrefix)) {
		t.Errorf("key %s: %v", key, err)
	}
	// Whoever deletes all keys deletes the marker before pods and policies of namespaces.
	if key > model.KindRoot(model.DefaultPrefix, model.KindNamespace) {
		t.Errorf("%s comes after the namespaces", key)
	}
	if n := model.CountsOf(model.Root(model.DefaultPrefix), []model.Entry{{Key: key, Value: []byte("{}")}}).Total(); n != 0 {
		t.Errorf("the marker counts as %d objects", n)
	}
}

func TestMarkerDecodeIgnoresUnknownFields(t *testing.T) {
	text := `{"cluster":"a","generation":7,"counts":{"pod":2,"widget":1},"digest":"x","shards":[1]}`
	m, err := model.DecodeMarker([]byte(text))
	if err != nil || m.Cluster != "a" || m.Generation != 7 || m.Counts["pod"] != 2 || m.Counts["widget"] != 1 {
		t.Errorf("%+v, %v", m, err)
	}
	for name, bad := range map[string]string{
		"cannot be read": `{"cluster":`, "invalid cluster": `{"generation":7}`, "invalid generation": `{"cluster":"a"}`,
		"got 300": `{"generation":7,"cluster":"` + strings.Repeat("x", 300) + `"}`,
	} {
		if _, err := model.DecodeMarker([]byte(bad)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := model.DecodeMarker(nil); !errors.Is(err, model.ErrNoMarker) {
		t.Errorf("no value: %v", err)
	}
}

func TestCountsCompare(t *testing.T) {
	for _, c := range []struct {
		have, before model.Counts
		lacks        model.Kind
		vanished     bool
	}{
		{nil, nil, "", false},
		{model.Counts{"pod": 1}, model.Counts{"pod": 2}, "pod", false},
		{model.Counts{"pod": 3}, model.Counts{"pod": 2}, "", false},
		{model.Counts{"pod": 3}, model.Counts{"pod": 2, "networkpolicy": 1}, "networkpolicy", false},
		{model.Counts{}, model.Counts{"pod": 1}, "pod", true},
		{model.Counts{"pod": 3}, model.Counts{"namespace": 1}, "namespace", true},
	} {
		if got := c.have.Lacks(c.before); got != c.lacks {
			t.Errorf("%v lacks %q of %v, want %q", c.have, got, c.before, c.lacks)
		}
		if got := c.have.Vanished(c.before); got != c.vanished {
			t.Errorf("%v after %v vanished: %v", c.have, c.before, got)
		}
	}
}
