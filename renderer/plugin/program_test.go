package plugin_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/renderer/plugin"
	"github.com/sluice-net/sluice/renderer/plugin/plugintest"
)

// TestHashMapOfProgramWaitsForNobody runs maptest.c.
func TestHashMapOfProgramWaitsForNobody(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), plugintest.Compile(t, "maptest.c")).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestConnectionIsAliveAsInProgram asks the agent and the program about the same connections, around
// the ends of all lifetimes: the fill level of the table is counted by the one, and places are given
// by the other.
func TestConnectionIsAliveAsInProgram(t *testing.T) {
	type question struct {
		state uint64
		now   uint32
	}
	var questions []question
	const now = 1 << 20
	for flags := range uint64(1 << 8) { // from the direction to whether it is used and being written
		for _, protocol := range []uint64{1, 6, 17, 58, 132} {
			for _, seconds := range []int{-2, 0, 9, 10, 11, 29, 30, 31, 59, 60, 61, 179, 180, 181, 6*3600 - 1, 6 * 3600, 6*3600 + 1} {
				questions = append(questions, question{flags<<40 | protocol<<32 | uint64(uint32(now-seconds*1000/256)), now})
			}
		}
	}
	var in strings.Builder
	for _, q := range questions {
		fmt.Fprintln(&in, q.state, q.now)
	}
	program := exec.CommandContext(t.Context(), plugintest.Compile(t, "alivetest.c"))
	program.Stdin = strings.NewReader(in.String())
	out, err := program.Output()
	answers := strings.Fields(string(out))
	if err != nil || len(answers) != len(questions) {
		t.Fatalf("%d answers to %d questions, %v", len(answers), len(questions), err)
	}
	alive := 0
	for i, q := range questions {
		used := q.state>>46&1 == 1 // the program asks about no others
		if got := plugin.IsAlive(q.state, q.now); got != (used && answers[i] == "1") {
			t.Fatalf("state %#x at %d: the agent says %t, the program %s", q.state, q.now, got, answers[i])
		} else if got {
			alive++
		}
	}
	if alive == 0 || alive == len(questions) {
		t.Errorf("%d of %d are alive", alive, len(questions))
	}
}
