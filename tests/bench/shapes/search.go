package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-net/sluice/tests/lab/shapes"
)

// searchBytes is how large the policies are that are searched.
const searchBytes = 1 << 20

// candidate is manifests that were measured.
type candidate struct {
	shapes.Genome
	result
	given bool // up: the process took longer than the limit
}

// aim is what a search makes as large as it can.
type aim struct {
	name  string
	value func(candidate) float64
	best  candidate
	tries int // since best was found
}

func aims() []*aim {
	return []*aim{
		{name: "processor time", value: func(c candidate) float64 { return c.CPU.Seconds() }},
		{name: "memory", value: func(c candidate) float64 { return float64(c.RSS) }},
		{name: "until another tenant is served", value: func(c candidate) float64 { return c.Other.Seconds() }},
	}
}

// patience is after how many tries without something worse a search begins elsewhere.
const patience = 40

// search looks for the worst manifests of a tenant for some time, and prints each that is worse
// than those before. It climbs: from the worst that is known to what differs in one or two values.
func search(o options) error {
	r := rand.New(rand.NewPCG(o.seed, 7))
	all := aims()
	worst := make([]candidate, len(all))
	fmt.Println("| the most | manifests of 1 MiB at most | CPU | memory | other tenant | not enforced |\n|---|---|---|---|---|---|")
	for end, n := time.Now().Add(o.search), 0; time.Now().Before(end); n++ {
		i := n % len(all)
		a := all[i]
		g := a.best.Mutate(r)
		if a.tries++; a.best.Pods == 0 || a.tries > patience {
			g, a.best, a.tries = shapes.RandomGenome(r), candidate{}, 0
		}
		c, err := try(g, o)
		if err != nil {
			return fmt.Errorf("%s: %w", g, err)
		}
		for i, a := range all {
			if a.value(c) > a.value(a.best) {
				a.best, a.tries = c, 0
			}
			if a.value(c) > 1.05*a.value(worst[i]) {
				worst[i] = c
				fmt.Println(c.row(a.name))
			}
		}
	}
	fmt.Println("\nthe worst:")
	for i, a := range all {
		fmt.Println(worst[i].row(a.name))
	}
	return nil
}

func (c candidate) row(name string) string {
	more := ""
	if c.given {
		more = "> "
	}
	return fmt.Sprintf("| %s | %s | %s%.2f s | %d MiB | %d ms | %d %s |", name, c.Genome, more, c.CPU.Seconds(), c.RSS>>20, c.Other.Milliseconds(), c.Refused, c.Err)
}

// try measures manifests in a process of its own.
func try(g shapes.Genome, o options) (candidate, error) {
	c := candidate{Genome: g}
	p, err := measured(o, "-genome", g.String())
	switch {
	case err != nil:
		return c, err
	case p.late:
		c.given, c.Other, c.CPU, c.RSS = true, o.limit, p.cpu, p.memory
		return c, nil
	case p.err != nil:
		return c, errors.Join(p.err, errors.New(string(p.out)))
	}
	return c, json.Unmarshal(p.out, &c.result)
}
