package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/plugins/policy"
)

// turn is one transaction of the event loop: it looks for changes before and after, not within.
// Renderers that need longer go on beside it.
type turn struct {
	total  time.Duration
	stages []string
}

// turns finds the longest turn. Its methods may be called from any goroutine.
type turns struct {
	mu        sync.Mutex
	now, most turn
}

func (t *turns) observer() policy.Observer {
	return policy.Observer{
		Stage: func(s policy.Stage, d time.Duration) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.now.total += d
			if d >= time.Millisecond {
				t.now.stages = append(t.now.stages, fmt.Sprintf("%s %d", s, d.Milliseconds()))
			}
		},
		Transaction: func(policy.Status) {
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.now.total > t.most.total {
				t.most = t.now
			}
			t.now = turn{}
		},
	}
}

// forget starts anew.
func (t *turns) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now, t.most = turn{}, turn{}
}

// longest returns the length of the longest turn, and the milliseconds of its stages.
func (t *turns) longest() (time.Duration, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.most.total, strings.Join(t.most.stages, ", ")
}
