package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// errMissed says that a fault was not caught, or that the list is wrong.
var errMissed = errors.New("faults were not caught")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil:
	case errors.Is(err, errMissed):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

// command is what the flags say.
type command struct {
	Options
	faults, suites *regexp.Regexp
	list, json     bool
}

func parse(args []string, w io.Writer) (command, error) {
	var c command
	flags := flag.NewFlagSet("mutation", flag.ContinueOnError)
	flags.SetOutput(w)
	pattern := flags.String("run", "", "only faults whose area/name matches this `regexp`")
	suites := flags.String("suites", "", "only suites whose folder matches this `regexp`")
	output := flags.String("o", "table", "table or json")
	flags.BoolVar(&c.list, "list", false, "list the faults and run nothing")
	flags.IntVar(&c.Parallel, "parallel", 2, "how many faults are tried at a time")
	flags.BoolVar(&c.Every, "every", false, "run every suite on every fault, not only until one fails")
	flags.BoolVar(&c.Unit, "unit", false, "run the tests of the mutated package, too")
	flags.Uint64Var(&c.Seed, "seed", 1, "seed of random tests; 0 draws one")
	flags.DurationVar(&c.Limit, "limit", time.Minute, "how long one run of a suite may take at least")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	var err1, err2, err3 error
	c.faults, err1 = regexp.Compile(*pattern)
	c.suites, err2 = regexp.Compile(*suites)
	if c.json = *output == "json"; !c.json && *output != "table" {
		err3 = fmt.Errorf("%q is not an output: want table or json", *output)
	}
	return c, errors.Join(err1, err2, err3)
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	c, err := parse(args, progress)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	t, err := openTree(ctx, ".")
	if err != nil {
		return err
	}
	faults, err := load()
	if err != nil {
		return err
	}
	if faults = choose(faults, c.faults); len(faults) == 0 {
		return fmt.Errorf("no fault matches %q", c.faults)
	}
	if c.list {
		return printFaults(out, t, faults)
	}
	if faults, err = possible(faults, progress); err != nil {
		return err
	}
	report, err := c.report(ctx, t, faults, progress)
	if err != nil {
		return err
	}
	if c.json {
		err = report.json(out)
	} else {
		err = report.table(out, c.Unit)
	}
	if n := report.missed(); err == nil && n > 0 {
		return fmt.Errorf("%w: %d of %d", errMissed, n, len(faults))
	}
	return err
}

// report runs the faults and prints the progress.
func (c command) report(ctx context.Context, t tree, faults []Fault, progress io.Writer) (out Report, err error) {
	suites := slices.DeleteFunc(slices.Clone(harness), func(s Suite) bool {
		return !c.suites.MatchString(s.name()) || !slices.ContainsFunc(faults, func(f Fault) bool { return f.ofPackets() == s.Kernel })
	})
	start := time.Now()
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(progress, format, args...) } // there is no way to report the error
	c.Progress = func(done, all int, r Result) {
		say("[%d/%d] %s/%s %s: %s (%.0f s)\n", done, all, r.Area, r.Fault, r.Verdict, r.describe(), r.Seconds)
	}
	say("running %d suites without a fault\n", len(suites))
	r, err := newRunner(ctx, t, suites, c.Options)
	if r != nil {
		defer func() { err = errors.Join(err, r.close()) }()
	}
	if err != nil {
		return out, err
	}
	var order []string
	for _, s := range r.suites {
		took, _ := s.took[short]() // has passed
		say("%s passes in %.1f s\n", s.name(), took.Seconds())
		order = append(order, s.name())
	}
	results, err := r.run(ctx, faults)
	return newReport(results, order, time.Since(start).Seconds()), err
}

// printFaults lists faults with the line that they begin at.
func printFaults(w io.Writer, t tree, faults []Fault) error {
	var b strings.Builder
	for _, f := range faults {
		fmt.Fprintf(&b, "%s\t%s\t%s\n", f.ID(), t.place(f), f.Why)
	}
	return inColumns(w, b.String())
}

// place returns the file and line of a fault.
func (t tree) place(f Fault) string {
	source, err := os.ReadFile(filepath.Join(t.root, filepath.FromSlash(f.File)))
	if err != nil {
		return f.File
	}
	before, _, found := bytes.Cut(source, []byte(f.Was))
	if !found {
		return f.File
	}
	return fmt.Sprintf("%s:%d", f.File, 1+bytes.Count(before, []byte("\n")))
}
