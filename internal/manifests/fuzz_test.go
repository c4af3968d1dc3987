package manifests

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

func FuzzDecode(f *testing.F) {
	f.Fuzz(func(t *testing.T, in []byte) {
		objs, problems := Decode(bytes.NewReader(in), "f")
		for _, p := range problems {
			if !strings.HasPrefix(p.Source, "f") || p.Reason == "" || !utf8.ValidString(p.Error()) || strings.ContainsAny(p.Error(), "\n\r\t") {
				t.Errorf("problem %q", p.Error())
			}
		}
		seen := map[model.ID]bool{}
		for _, o := range objs {
			id := o.ID()
			if seen[id] || kinds.CheckID(id) != nil {
				t.Errorf("object %v, there before: %v", id, seen[id])
			}
			seen[id] = true
			msg, problems := convert.ToModel(o)
			if msg == nil {
				if len(problems) == 0 {
					t.Errorf("%v is refused without a problem", id)
				}
				continue
			}
			if value, err := model.Encode(msg); err != nil || len(value) == 0 {
				t.Errorf("%v has no bytes", id)
			}
		}
		for _, o := range kinds.ImpliedNamespaces(objs) {
			if msg, problems := convert.ToModel(o); msg == nil {
				t.Fatalf("refused: %v", problems)
			}
		}
	})
}
