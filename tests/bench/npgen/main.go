// Command npgen generates inputs of the size of clusters for the benchmarks: objects,
// events and the counts that an engine must come to. See npgen -h.
//
// It only produces input for the flow and shares nothing with it, neither the types of its objects
// nor the code that matches selectors, so that its counts are independent.
//
// # Invariants
//
//   - The same flags give the same bytes, on any machine and with any version of Go. Every
//     number that is drawn comes from a stream of its seed (rng), and the order of draws
//     is part of the format: figures of other engines were measured on these bytes.
//   - No two pods have the same address.
//   - stats.json describes init.jsonl, not what comes of it by the events.
//
// rng.go draws, objects.go and selector.go are what is written, cluster.go, policies.go,
// blocks.go and admin.go are the start, events.go is what follows, stats.go counts.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "npgen:", err)
		os.Exit(1)
	}
}

// run generates what the arguments ask for and prints the stats.
func run(args []string, stdout io.Writer) error {
	o, err := parse(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w (-h shows the flags)", err)
	}
	c := newCluster(o.seed, sizes[o.size], o.dual)
	events := workloads[o.workload].build(c, o)
	if err := c.checkAddresses(); err != nil {
		return err
	}
	return writeAll(o.out, c, events, summarise(o, c, events), stdout)
}

// summarise returns the stats of a workload.
func summarise(o options, c *cluster, events eventLog) stats {
	var s stats
	if !o.noStats {
		s = takeCensus(c)
	}
	s.Workload, s.Size, s.Seed, s.Events = o.workload, o.size, o.seed, len(events)
	s.EventsByTag = map[string]int{}
	for _, e := range events {
		s.EventsByTag[e.Tag]++
	}
	return s
}
