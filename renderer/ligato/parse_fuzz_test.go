package ligato

import (
	"bytes"
	"testing"

	"github.com/sluice-net/sluice/api/model"
)

// FuzzParse parses arbitrary etcd values. A parsed value must encode to the original.
func FuzzParse(f *testing.F) {
	good, err := published{content: reflectContent(), ingress: []string{"a", "b"}}.entry("p/", reflectName)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(good.Value), "", "null", `{"rules":[null]}`, `{"name":"sluice-reflect","rules":[{"action":1}],"interfaces":{}}`} {
		f.Add([]byte(seed), string(good.Value))
	}
	f.Fuzz(func(t *testing.T, a []byte, b string) {
		p, ok := parse("p/", model.Entry{Key: "p/" + reflectName, Value: a})
		if ok {
			if again, err := p.entry("p/", reflectName); err != nil || !bytes.Equal(again.Value, a) {
				t.Errorf("%q becomes %q, %v", a, again.Value, err)
			}
		}
		x, y := content{rules: a}, content{rules: []byte(b)}
		if sameToTheAgent(x, y) != sameToTheAgent(y, x) {
			t.Errorf("%q and %q are the same one way only", a, b)
		}
	})
}
