package view

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
)

// shelf is a store in a map.
type shelf map[string][]byte

func (s shelf) List(_ context.Context, prefix string) (out []model.Entry, _ int64, _ error) {
	for key, value := range s {
		if strings.HasPrefix(key, prefix) {
			out = append(out, model.Entry{Key: key, Value: value})
		}
	}
	return out, 1, nil
}

func (s shelf) Write(_ context.Context, puts []model.Entry, deletes []string) error {
	for _, e := range puts {
		s[e.Key] = e.Value
	}
	for _, key := range deletes {
		delete(s, key)
	}
	return nil
}

// FuzzChange: the body of a change is an error and nothing is written, or every key
// of the store is that of an object and its value is read as that object.
func FuzzChange(f *testing.F) {
	for _, s := range []string{
		`{"put":[{"kind":"namespace","name":"shop","value":"CgRzaG9w"}]}`,
		`{"put":[{"kind":"pod","namespace":"shop","name":"web","value":"CgRzaG9wEgN3ZWI="}],"delete":[{"kind":"networkpolicy","namespace":"shop","name":"web"}]}`,
		`{"put":[{"kind":"pod","namespace":"a/b","name":"c","value":""}]}`, `{"put":[{"kind":"pod","namespace":"_","name":"c"}]}`,
		`{"put":[{"kind":"namespace","name":"shop","value":"CgRzaG9w"},{"kind":"namespace","name":"shop","value":"CgRzaG9w"}]}`,
		`{"delete":[{"kind":"namespace","namespace":"_","name":"x"}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var c Change
		if json.Unmarshal(body, &c) != nil {
			return
		}
		store := shelf{}
		done, err := Write(t.Context(), reflect.NewReflector(store, model.DefaultPrefix, slog.New(slog.DiscardHandler)), c)
		if err != nil {
			if len(store) > 0 {
				t.Errorf("an error, and %d keys are written: %v", len(store), err)
			}
			return
		}
		if done.Put+done.Deleted+done.Unchanged == 0 && len(c.Put)+len(c.Delete) > 0 {
			t.Errorf("nothing is reported about %s", body)
		}
		for key, value := range store {
			if key == model.MarkerKey(model.DefaultPrefix) {
				continue
			}
			id, err := model.ParseKey(model.DefaultPrefix, key)
			if err != nil {
				t.Fatalf("%q is written: %v", key, err)
			}
			if _, err := model.Decode(id, value); err != nil {
				t.Errorf("%q is written with a value that is not read: %v", key, err)
			}
		}
	})
}

// FuzzQuestionJSON: a question in JSON comes back as it was.
func FuzzQuestionJSON(f *testing.F) {
	f.Add([]byte(`{"src":"shop/web-0","dst":"10.0.0.1","port":"http","protocol":"udp"}`))
	f.Add([]byte(`{"src":"app=web","dst":"fd00::1","protocol":"58"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var q, again Question
		if json.Unmarshal(b, &q) != nil {
			return
		}
		text, err := json.Marshal(q)
		if err != nil {
			t.Fatalf("%+v is not written: %v", q, err)
		}
		if err := json.Unmarshal(text, &again); err != nil || again != q {
			t.Errorf("%s is %+v, and that is %+v, %v", b, q, again, err)
		}
	})
}
