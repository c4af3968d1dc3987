package cluster

import "github.com/sluice-net/sluice/internal/analysis/oracle"

// mode draws the annotations of a policy: one of three is in audit mode.
func (d draws) mode() map[string]string {
	if !d.cfg.Audit {
		return nil
	}
	modes := []string{"", "", "", "audit", "audit", "enforce"}
	if d.cfg.Odd {
		modes = append(modes, "Audit")
	}
	mode := pick(d, modes, "mode")
	if mode == "" {
		return nil
	}
	return map[string]string{oracle.ModeAnnotation: mode}
}
