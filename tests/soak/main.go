package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/tests/harness/backends"
)

// Exit codes.
const (
	passed      = 0
	diverged    = 1
	misused     = 2
	interrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Clusters are short-lived: a larger heap saves a third of the time.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(memoryLimit)
	os.Exit(run(ctx, os.Args[1:], backends.All, os.Stdout, os.Stderr))
}

const (
	memoryLimit      = 512 << 20
	defaultSequences = 1000
	defaultMinimise  = time.Minute
	allKinds         = "all"
)

// settings are what the flags say.
type settings struct {
	sequences int
	workers   int
	seed      uint64
	kind      string
	flows     int
	stride    int
	most      int // divergences after which it ends
	minimise  time.Duration
	output    string
}

func parse(args []string, errOut io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.IntVar(&s.sequences, "sequences", defaultSequences, "how many sequences to play")
	flags.IntVar(&s.workers, "workers", runtime.NumCPU(), "how many to play at the same time")
	flags.Uint64Var(&s.seed, "seed", uint64(time.Now().Unix()), "of the first sequence; the next ones count up")
	flags.StringVar(&s.kind, "kind", allKinds, "of the stack: what renders and enforces; "+allKinds+" takes one after the other, by the seed, but for those that take long")
	flags.IntVar(&s.flows, "flows", 0, "to ask after an event; 0 for a few dozen")
	flags.IntVar(&s.stride, "stride", 2, "of the events after which nodes are compared with new ones")
	flags.IntVar(&s.most, "divergences", 3, "after which it ends")
	flags.DurationVar(&s.minimise, "minimise", defaultMinimise, "how long a minimal case is looked for")
	flags.StringVar(&s.output, "o", "text", "the form of the report: text or json")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case s.sequences < 1 || s.workers < 1 || s.stride < 1 || s.most < 1:
		return s, errors.New("sequences, workers, stride and divergences must be at least 1")
	case s.output != "text" && s.output != "json":
		return s, fmt.Errorf("unknown form of output %q: want text or json", s.output)
	}
	return s, nil
}

// chosen returns the kinds of a name: all are those that every machine has and that are not slow.
func chosen(kinds []backends.Kind, name string) ([]backends.Kind, error) {
	if name == allKinds {
		return slices.DeleteFunc(slices.Clone(kinds), func(k backends.Kind) bool { return k.Slow }), nil
	}
	k, err := backends.Named(kinds, name)
	if err == nil && k.Missing != nil {
		err = k.Missing()
	}
	return []backends.Kind{k}, err
}

// run is the program: it returns the exit code.
func run(ctx context.Context, args []string, kinds []backends.Kind, out, errOut io.Writer) int {
	set, err := parse(args, errOut)
	if errors.Is(err, flag.ErrHelp) {
		return passed
	}
	if err == nil {
		kinds, err = chosen(kinds, set.kind)
	}
	if err != nil {
		_, _ = fmt.Fprintln(errOut, "soak:", err)
		return misused
	}
	s := &soak{settings: set, kinds: kinds}
	report := s.run(ctx, errOut)
	if err := report.write(out, set.output); err != nil {
		_, _ = fmt.Fprintln(errOut, "soak:", err)
		return diverged
	}
	switch {
	case len(report.Divergences) > 0:
		return diverged
	case report.Interrupted:
		return interrupted
	}
	return passed
}
