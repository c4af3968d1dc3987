package oracle

import (
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

func TestParsePrefix(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.0/8":            "10.0.0.0/8",
		"10.1.2.3/8":            "10.0.0.0/8",
		"010.001.02.3/08":       "10.0.0.0/8",
		"000.0.0.0/0":           "0.0.0.0/0",
		"fd00::1/64":            "fd00::/64",
		"::/0":                  "::/0",
		"::ffff:10.1.2.3/104":   "10.0.0.0/8",
		"::ffff:010.1.2.3/128":  "10.1.2.3/32",
		"::ffff:10.1.2.3/96":    "0.0.0.0/0",
		"::ffff:10.1.2.3/95":    "::fffe:0:0/95",
		"10.0.0.0":              "",
		"10.0.0.0/":             "",
		"10.0.0.0/33":           "",
		"10.0.0.0/-1":           "",
		"10.0.0.0/+1":           "",
		"10.0.0.0/8/8":          "",
		"10.0.0/8":              "",
		"10.0.0.256/8":          "",
		"10..0.0/8":             "",
		" 10.0.0.0/8":           "",
		"fe80::1%eth0/64":       "",
		"fd00::/129":            "",
		"/8":                    "",
		"":                      "",
		"10.0.0.0/999999999999": "",
	} {
		got, err := parsePrefix(text)
		if want == "" {
			if err == nil {
				t.Errorf("%q is %s, want an error", text, got)
			}
			continue
		}
		if err != nil || got.String() != want {
			t.Errorf("%q is %s (%v), want %s", text, got, err, want)
		}
	}
}

// FuzzParsePrefix: whatever is read is a masked prefix that reads back as
// itself, and what the strict parser accepts means the same.
func FuzzParsePrefix(f *testing.F) {
	for _, seed := range []string{"10.0.0.0/8", "010.1.2.3/08", "::ffff:1.2.3.4/100", "fd00::/64", "::/0", "1.2.3.4", "::1.2.3.4/90", "a%b/1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parsePrefix(text)
		strict, strictErr := netip.ParsePrefix(text)
		if err != nil {
			if strictErr == nil {
				t.Errorf("%q is refused: %v", text, err)
			}
			return
		}
		if !got.IsValid() || got != got.Masked() {
			t.Errorf("%q is %s, which is not masked", text, got)
		}
		if again, err := parsePrefix(got.String()); err != nil || again != got {
			t.Errorf("%q is %s, which reads as %s (%v)", text, got, again, err)
		}
		if strictErr == nil && !strict.Addr().Is4In6() && got != strict.Masked() {
			t.Errorf("%q is %s, want %s", text, got, strict.Masked())
		}
	})
}

func TestParseBlockTakesAllOrNothing(t *testing.T) {
	b, err := ParseBlock(&networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16", "10.1.2.0/24"}})
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]bool{"10.0.0.1": true, "10.1.9.9": false, "10.1.2.3": false, "11.0.0.1": false, "::1": false} {
		if ok, _ := b.contains(netip.MustParseAddr(addr)); ok != want {
			t.Errorf("contains(%s) is %t", addr, ok)
		}
	}
	if _, err := ParseBlock(&networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16", "x"}}); err == nil {
		t.Error("a block with an except that cannot be read was accepted")
	}
}
