package bench

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Table reads the output of "go test -bench" and writes it as tables in Markdown:
// one for every top-level benchmark, one row for every sub-benchmark with the
// medians over its runs, in the order of the input. A unit "part:unit" is the unit
// of a part of the benchmark, which has a row of its own. Other lines are left out. It is
// an error when there are no results, or when a benchmark or test has failed: what
// failed its check has no time.
func Table(w io.Writer, output io.Reader) error {
	var t tables
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); strings.HasPrefix(line, "--- FAIL") {
			return fmt.Errorf("the output has a failure: %s", strings.TrimSpace(strings.TrimPrefix(line, "--- FAIL:")))
		}
		if err := t.add(lines.Text()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the output of benchmarks: %w", err)
	}
	if len(t.rows) == 0 {
		return fmt.Errorf("the output of benchmarks has no results")
	}
	return t.write(w)
}

// tables are rows in the order of their first appearance.
type tables struct {
	rows  []*row
	named map[string]*row
}

// row is one benchmark.
type row struct {
	table, name string
	values      map[string][]float64 // by unit, one of every run
}

func (r *row) runs() int {
	n := 0
	for _, values := range r.values {
		n = max(n, len(values))
	}
	return n
}

// add reads one line: a name, the number of iterations, then values with units.
func (t *tables) add(line string) error {
	fields := strings.Fields(line)
	if len(fields) < 4 || len(fields)%2 != 0 || !strings.HasPrefix(fields[0], "Benchmark") {
		return nil
	}
	if _, err := strconv.Atoi(fields[1]); err != nil {
		return nil // a line of a log
	}
	name := withoutCPUs(fields[0])
	t.row(name) // before those of its parts
	for i := 2; i < len(fields); i += 2 {
		v, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return fmt.Errorf("result of %s: %w", fields[0], err)
		}
		r, unit := t.row(name), fields[i+1]
		if part, of, ok := strings.Cut(unit, ":"); ok {
			r, unit = t.row(name+"/"+part), of
		}
		r.values[unit] = append(r.values[unit], v)
	}
	return nil
}

func (t *tables) row(name string) *row {
	if r := t.named[name]; r != nil {
		return r
	}
	r := &row{values: map[string][]float64{}}
	r.table, r.name, _ = strings.Cut(name, "/")
	r.table = strings.TrimPrefix(r.table, "Benchmark")
	r.name = cmp.Or(r.name, r.table)
	if t.named == nil {
		t.named = map[string]*row{}
	}
	t.named[name] = r
	t.rows = append(t.rows, r)
	return r
}

// withoutCPUs cuts the number of processors off that the testing package appends.
func withoutCPUs(name string) string {
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return name
	}
	if _, err := strconv.Atoi(name[i+1:]); err != nil {
		return name
	}
	return name[:i]
}

func (t *tables) write(w io.Writer) error {
	for i := 0; i < len(t.rows); {
		rows := []*row{}
		for table := t.rows[i].table; i < len(t.rows) && t.rows[i].table == table; i++ {
			rows = append(rows, t.rows[i])
		}
		if _, err := io.WriteString(w, text(rows)); err != nil {
			return fmt.Errorf("write the table: %w", err)
		}
	}
	return nil
}

// text renders one table. Its columns are the units that occur, the usual ones
// first.
func text(rows []*row) string {
	var units []string
	for _, r := range rows {
		for unit := range r.values {
			if !slices.Contains(units, unit) {
				units = append(units, unit)
			}
		}
	}
	slices.SortFunc(units, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	var out strings.Builder
	fmt.Fprintf(&out, "### %s\n\n| | runs |", rows[0].table)
	for _, u := range units {
		fmt.Fprintf(&out, " %s |", heading(u))
	}
	out.WriteString("\n|---|---|" + strings.Repeat("---|", len(units)) + "\n")
	for _, r := range rows {
		fmt.Fprintf(&out, "| %s | %d |", r.name, r.runs())
		for _, u := range units {
			out.WriteString(" " + cell(u, r.values[u]) + " |")
		}
		out.WriteByte('\n')
	}
	out.WriteByte('\n')
	return out.String()
}

// first are the units of the first columns.
var first = []string{"ns/op", "cpu-us/op", "p50-us", "p99-us", "max-us"}

func rank(unit string) int {
	switch i := slices.Index(first, unit); {
	case i >= 0:
		return i
	case unit == "B/op" || unit == "allocs/op":
		return len(first) + 1
	}
	return len(first)
}

// isTime reports whether a unit is a time, and how many nanoseconds it is.
func isTime(unit string) (ns float64, ok bool) {
	switch {
	case unit == "ns/op":
		return 1, true
	case strings.HasSuffix(unit, "-us"), strings.HasPrefix(unit, "cpu-us/"):
		return 1e3, true
	case strings.HasSuffix(unit, "-ms"):
		return 1e6, true
	}
	return 0, false
}

// heading names a unit without its scale where cells have their own.
func heading(unit string) string {
	if unit == "ns/op" {
		return "wall"
	}
	if _, ok := isTime(unit); ok {
		unit = strings.TrimSuffix(strings.TrimSuffix(strings.Replace(unit, "cpu-us/", "cpu/", 1), "-us"), "-ms")
	}
	return unit
}

// cell renders the median of some runs.
func cell(unit string, values []float64) string {
	if len(values) == 0 {
		return ""
	}
	v := median(values)
	ns, ok := isTime(unit)
	if !ok {
		return significant(v)
	}
	switch ns *= v; {
	case ns >= 1e9:
		return significant(ns/1e9) + " s"
	case ns >= 1e6:
		return significant(ns/1e6) + " ms"
	case ns >= 1e3:
		return significant(ns/1e3) + " µs"
	}
	return significant(ns) + " ns"
}

// significant renders three digits, and integers from 1000 on.
func significant(v float64) string {
	if v >= 100 || v == float64(int64(v)) {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// median returns the middle, for an even number the mean of the two. It sorts its
// argument.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
