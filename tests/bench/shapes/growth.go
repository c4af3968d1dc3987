package main

import (
	"fmt"

	"github.com/sluice-net/sluice/tests/bench/plot"
	"github.com/sluice-net/sluice/tests/lab/shapes"
)

// growth writes plots of what shapes cost by their size: an eighth, a quarter, a half and the whole
// of that in the table.
func growth(o options) error {
	var cpu, memory []plot.Series
	for _, s := range shapes.All {
		if o.shape != "" && s.Name != o.shape {
			continue
		}
		c, m := plot.Series{Name: s.Name}, plot.Series{Name: s.Name}
		for _, part := range []int{8, 4, 2, 1} {
			r, err := inProcess(s, s.Size/part, o)
			if err != nil {
				return fmt.Errorf("%s, %d: %w", s.Name, s.Size/part, err)
			}
			kb := float64(r.Bytes) / 1024
			c.Points = append(c.Points, [2]float64{kb, r.CPU.Seconds()})
			m.Points = append(m.Points, [2]float64{kb, float64(r.RSS) / (1 << 20)})
		}
		cpu, memory = append(cpu, c), append(memory, m)
	}
	return plot.Write(o.plots, map[string]string{
		"shapes-cpu.svg":    plot.LogLog("seconds of processor time until a tenant's policies are enforced", "KB of policies", cpu),
		"shapes-memory.svg": plot.LogLog("the most memory of the process, in MiB", "KB of policies", memory),
	})
}
