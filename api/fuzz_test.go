package api

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// texts are the types that have a text form in JSON, questions and files.
func texts() []encoding.TextUnmarshaler {
	return []encoding.TextUnmarshaler{
		new(PodID), new(PolicyKind), new(Direction), new(Action), new(Protocol), new(PortRange), new(SetID),
	}
}

// FuzzText: whatever text is read as a value, the value is written as one text, and
// that text is read as the same value. What is refused is quoted and cut.
func FuzzText(f *testing.F) {
	for _, s := range []string{
		"shop/web-0", "NetworkPolicy", "ingress", "permit", "tcp", "TCP", "17", "any", "80", "8000-8010", "0-65535", "65535-0", "node",
		"00000000000000ff", "a/b/c", "/", "080", "+80", "-1", "\xff/\x00", "1-", "tcp/80",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, v := range texts() {
			if err := v.UnmarshalText([]byte(s)); err != nil {
				if len(err.Error()) > 600 {
					t.Errorf("%T: the error has %d bytes", v, len(err.Error()))
				}
				continue
			}
			text, err := v.(encoding.TextMarshaler).MarshalText()
			if err != nil {
				t.Fatalf("%T: %q is read and not written: %v", v, s, err)
			}
			again := reflect.New(reflect.TypeOf(v).Elem()).Interface().(encoding.TextUnmarshaler)
			if err := again.UnmarshalText(text); err != nil || !reflect.DeepEqual(v, again) {
				t.Errorf("%T: %q is written as %q, and that read as %v, %v", v, s, text, again, err)
			}
		}
		if p, err := ParseProtocol(s); err == nil && p.String() != strings.ToLower(s) {
			if n, err := ParseProtocol(p.String()); err != nil || n != p {
				t.Errorf("protocol %q is %s", s, p)
			}
		}
	})
}

// FuzzJSON: a rule, a flow and an origin in JSON come back as they were, and what is
// read of a rule can be compared and printed.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"action":"permit","src":{"prefix":"10.0.0.0/8"},"protocol":"tcp","dstPort":"80"}`))
	f.Add([]byte(`{"action":"deny","dst":{"set":"node"}}`))
	f.Add([]byte(`{"src":"10.0.0.1","dst":"fd00::1","protocol":"udp","srcPort":1,"dstPort":53}`))
	f.Add([]byte(`{"policy":{"kind":"NetworkPolicy","namespace":"shop","name":"web"},"direction":"egress","rule":-1}`))
	f.Add([]byte(`{"src":{"prefix":"::ffff:1.2.3.4/100"},"dst":{"prefix":""}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, v := range []any{new(ContivRule), new(Flow), new(Origin), new(Problem)} {
			if json.Unmarshal(b, v) != nil {
				continue
			}
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatalf("%T of %q is not written: %v", v, b, err)
			}
			again := reflect.New(reflect.TypeOf(v).Elem()).Interface()
			if err := json.Unmarshal(text, again); err != nil || !reflect.DeepEqual(v, again) {
				t.Errorf("%T: %s is written as %s, and that read as %+v, %v", v, b, text, again, err)
			}
			if r, ok := v.(*ContivRule); ok && (r.Compare(*r) != 0 || r.String() == "") {
				t.Errorf("%+v is not equal to itself, or has no text", r)
			}
		}
	})
}
