package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/cockroachdb/datadriven"

	"github.com/sluice-net/sluice/api"
)

// questions are the commands that ask for verdicts.
type questions struct{ scene }

// verdicts prints a matrix: a row for each source, a column for each destination, and
// in a cell one letter for each port.
func (q questions) verdicts(_ context.Context, c command) (string, error) {
	if c.Input != "" {
		return "", errNoInput
	}
	var ports []port
	from, to := q.world.reader().everything(), q.world.reader().everything()
	for _, a := range c.CmdArgs {
		var err error
		switch a.Key {
		case "from":
			from, err = q.world.reader().endWords(a)
		case "to":
			to, err = q.world.reader().endWords(a)
		default:
			var p port
			p, err = parsePort(a.String())
			ports = append(ports, p)
		}
		if err != nil {
			return "", err
		}
	}
	if len(ports) == 0 {
		return "", errors.New("want ports")
	}
	return q.matrix(from, to, ports)
}

// everything returns every end that has a name.
func (r flowReader) everything() []end {
	var out []end
	for _, n := range r.names {
		out = append(out, end{name: n, addrs: r.addresses(n)})
	}
	return out
}

func (r flowReader) endWords(a datadriven.CmdArg) ([]end, error) {
	var out []end
	for _, v := range a.Vals {
		ends, err := r.ends(v)
		if err != nil {
			return nil, err
		}
		out = append(out, ends...)
	}
	return out, nil
}

func (q questions) matrix(from, to []end, ports []port) (string, error) {
	if err := q.judge(from, to, ports); err != nil {
		return "", err
	}
	rows := [][]string{{"from \\ to"}}
	for _, dst := range to {
		rows[0] = append(rows[0], dst.name)
	}
	for _, src := range from {
		row := []string{src.name}
		for _, dst := range to {
			cell, err := q.cell(src, dst, ports)
			if err != nil {
				return "", err
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return aligned(rows), nil
}

// judge says which flows the cells are about.
func (q questions) judge(from, to []end, ports []port) error {
	var all []api.Flow
	for _, src := range from {
		for _, dst := range to {
			for _, p := range ports {
				list, err := flows(src, dst, p)
				if err != nil {
					return err
				}
				all = append(all, list...)
			}
		}
	}
	q.subject.running.Judge(all)
	return nil
}

// aligned puts two spaces between columns, and none behind the last one.
func aligned(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		padded := make([]string, len(row))
		for i, cell := range row {
			padded[i] = fmt.Sprintf("%-*s", widths[i], cell)
		}
		b.WriteString(strings.TrimRight(strings.Join(padded, "  "), " ") + "\n")
	}
	return b.String()
}

// cell has a letter for each port: A allowed, D denied, 4 or 6 allowed in this family
// only. It is a dot where no flow is decided: between ends that are not pods, or that
// have no family in common.
func (q questions) cell(src, dst end, ports []port) (string, error) {
	var out strings.Builder
	for _, p := range ports {
		list, err := flows(src, dst, p)
		if err != nil {
			return "", err
		}
		if len(list) == 0 || !q.subject.decides(src) && !q.subject.decides(dst) {
			return ".", nil
		}
		out.WriteString(q.letter(list))
	}
	return out.String(), nil
}

func (q questions) letter(list []api.Flow) string {
	var allowed, denied [2]bool
	for _, f := range list {
		ok := q.subject.allowed(f)
		allowed[family(f.Src)] = allowed[family(f.Src)] || ok
		denied[family(f.Src)] = denied[family(f.Src)] || !ok
	}
	switch {
	case !denied[0] && !denied[1]:
		return "A"
	case !allowed[0] && !allowed[1]:
		return "D"
	case !denied[0] && !allowed[1]:
		return "4"
	case !denied[1] && !allowed[0]:
		return "6"
	}
	return "?" // addresses of one family that differ
}

// allow expects that all flows of its lines are allowed.
func (q questions) allow(_ context.Context, c command) (string, error) { return q.expect(c, true) }

// deny expects that all flows of its lines are denied.
func (q questions) deny(_ context.Context, c command) (string, error) { return q.expect(c, false) }

// expect lists the flows that get the contrary.
func (q questions) expect(c command, want bool) (string, error) {
	l := c.line()
	asks, err := q.world.reader().asks(c.Input)
	if err := errors.Join(err, l.end()); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, a := range asks {
		if !q.subject.decides(end{addrs: []netip.Addr{a.flow.Src, a.flow.Dst}}) {
			return "", fmt.Errorf("%s: no policy decides: neither end is a pod", a)
		}
		if q.subject.allowed(a.flow) != want {
			fmt.Fprintf(&b, "but %s (%s to %s) gets the contrary\n", a, a.flow.Src, a.flow.Dst)
		}
	}
	if b.Len() == 0 {
		return "ok", nil
	}
	return b.String(), nil
}
