package layout

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries/entriestest"
)

// universe are the packets that a property test checks.
var universe = func() (out []api.Flow) {
	for i := range 8 {
		for _, port := range []uint16{80, 81} {
			out = append(out, api.Flow{Src: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Dst: netip.AddrFrom4([4]byte{10, 1, 0, 0}), Protocol: api.TCP, DstPort: port})
		}
	}
	return out
}()

// anEntry generates an entry that matches some packets of the universe.
func anEntry(t *rapid.T, verdicts ...entries.Verdict) entries.Entry {
	bits := rapid.IntRange(29, 32).Draw(t, "bits")
	src := netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 7).Draw(t, "src"))})
	e := entries.Entry{
		Verdict: rapid.SampledFrom(verdicts).Draw(t, "verdict"), Protocol: api.TCP,
		Src: entries.NetOf(netip.PrefixFrom(src, bits).Masked()), Dst: entries.AnyIPv4, SrcPort: entries.AnyPorts, DstPort: entries.AnyPorts,
	}
	if rapid.Bool().Draw(t, "port") {
		e.DstPort = entries.Ports{First: 80, Last: 80}
	}
	return e
}

// judge returns the verdict of ACLs; noVerdict when no entry matches.
func judge(acls [][]entries.Entry, f api.Flow) entries.Verdict {
	for _, entries := range acls {
		for _, e := range entries {
			if entriestest.Matches(&e, f) {
				return e.Verdict
			}
		}
	}
	return noVerdict
}

const noVerdict = entries.Verdict(99)

// stages applies messages one by one, and checks after each that every packet meets its old or its
// new verdict.
func stages(t *rapid.T, before, after [][]entries.Entry, steps []Step) {
	now := slices.Clone(before)
	for step, c := range steps {
		now[c.At] = c.Piece.Entries
		for _, f := range universe {
			if got := judge(now, f); got != judge(before, f) && got != judge(after, f) {
				t.Fatalf("after message %d of %d, %s meets verdict %d, before %d, afterwards %d\nbefore %q\nafter  %q\nnow    %q",
					step+1, len(steps), f, got, judge(before, f), judge(after, f), texts(before), texts(after), texts(now))
			}
		}
	}
	for n := range now {
		if !slices.Equal(now[n], after[n]) {
			t.Fatalf("acl %d ends as %q, want %q", n, entriestest.Text(now[n]), entriestest.Text(after[n]))
		}
	}
}

func texts(acls [][]entries.Entry) (out [][]string) {
	for _, entries := range acls {
		out = append(out, entriestest.Text(entries))
	}
	return out
}

// contents returns the pieces of ACLs.
func contents(acls [][]entries.Entry) (out []entries.Piece) {
	for _, list := range acls {
		out = append(out, entries.NewPiece(list, nil))
	}
	return out
}

func TestChangesShowNoThirdState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		acls := rapid.IntRange(1, 4).Draw(t, "acls")
		before, after := make([][]entries.Entry, acls), make([][]entries.Entry, acls)
		for n := range acls {
			verdicts := []entries.Verdict{entries.Deny, entries.Reflect}
			if of := rapid.IntRange(0, 2).Draw(t, "class"); of < 2 {
				verdicts = verdicts[of : of+1]
			}
			draw := rapid.Custom(func(t *rapid.T) entries.Entry { return anEntry(t, verdicts...) })
			before[n] = rapid.SliceOfN(draw, 0, 4).Draw(t, "before")
			switch rapid.IntRange(0, 3).Draw(t, "how") {
			case 0:
				after[n] = before[n]
			case 1:
				after[n] = append(rapid.SliceOfN(draw, 0, 2).Draw(t, "more"), before[n]...)
			case 2:
				after[n] = before[n][:rapid.IntRange(0, len(before[n])).Draw(t, "fewer")]
			default:
				after[n] = rapid.SliceOfN(draw, 0, 4).Draw(t, "after")
			}
		}
		steps, ok := Changes(contents(before), contents(after))
		if !ok {
			t.Fatal("a small change is refused")
		}
		stages(t, before, after, steps)
	})
}

func TestChangesWriteGrowingACLOnce(t *testing.T) {
	e := entriestest.Many(6, -1).Entries
	mixed := slices.Clone(e)
	mixed[1].Verdict = entries.Deny
	for name, c := range map[string]struct {
		before, after [][]entries.Entry
		want          string
	}{
		"nothing":               {[][]entries.Entry{e, e}, [][]entries.Entry{e, e}, ""},
		"one":                   {[][]entries.Entry{e[:3], e}, [][]entries.Entry{e[2:], e}, " 0"},
		"gains, then loses":     {[][]entries.Entry{e[:2], e}, [][]entries.Entry{e[:3], e[1:]}, " 0 1"},
		"loses, then gains":     {[][]entries.Entry{e, e[:2]}, [][]entries.Entry{e[1:], e[:3]}, " 1 0"},
		"exchanges":             {[][]entries.Entry{e[:3], e[3:]}, [][]entries.Entry{e[3:], e[:3]}, " 0 1 0"},
		"order alone means":     {[][]entries.Entry{{e[0], mixed[1]}, e[:1]}, [][]entries.Entry{{mixed[1], e[0]}, nil}, " 0 1"},
		"loses from the middle": {[][]entries.Entry{mixed[:3], e[:1]}, [][]entries.Entry{{mixed[0], mixed[2]}, nil}, " 1 0"},
	} {
		t.Run(name, func(t *testing.T) {
			steps, ok := Changes(contents(c.before), contents(c.after))
			got := ""
			for _, s := range steps {
				got += fmt.Sprint(" ", s.At)
			}
			if got != c.want || !ok {
				t.Errorf("messages for%s, %v; want%s", got, ok, c.want)
			}
		})
	}
}

func TestChangesRefuseTooManyEntries(t *testing.T) {
	a, b := entriestest.Many(9000, -1).Entries, entriestest.Many(18_000, -1).Entries[9000:]
	if steps, ok := Changes(contents([][]entries.Entry{a, b}), contents([][]entries.Entry{b, a})); ok {
		t.Errorf("%d messages, want a refusal", len(steps))
	}
}
