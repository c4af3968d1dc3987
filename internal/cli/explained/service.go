package explained

import (
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
)

// ServiceRow is the verdict on one flow that packets to a service become. It has no flow where the
// service has no endpoint, and no service where none was asked about.
type ServiceRow struct {
	Service  *view.Service
	Src, Dst view.Party
	Flow     api.Flow
	Allowed  bool
}

// LeadsNowhere reports whether a question was about a service without endpoints.
func LeadsNowhere(s *view.Service) bool { return s != nil && s.Endpoints == 0 }

// WriteServices writes the whole verdict on each port of a service that rows are about, and that on
// each endpoint. It returns how many ports there are.
func WriteServices(w *term.Writer, rows []ServiceRow) int {
	var order []view.Service
	of := map[view.Service][]ServiceRow{}
	for _, r := range rows {
		if r.Service == nil {
			continue
		}
		if of[*r.Service] == nil {
			order = append(order, *r.Service)
		}
		of[*r.Service] = append(of[*r.Service], r)
	}
	for i, s := range order {
		if i > 0 {
			w.Printf("\n")
		}
		writeService(w, s, of[s])
	}
	return len(order)
}

func writeService(w *term.Writer, s view.Service, rows []ServiceRow) {
	allowed, sources := 0, map[string]bool{}
	for _, r := range rows {
		sources[r.Src.Name] = true
		if r.Allowed {
			allowed++
		}
	}
	word := w.Styled(term.Red, "DENIED")
	if allowed == len(rows) && s.Endpoints > 0 {
		word = w.Styled(term.Green, "ALLOWED")
	}
	w.Printf("%s  %s: %s\n", word, w.Styled(term.Bold, serviceText(s)), reachedOf(s, allowed, len(rows), len(sources) == 1))
	if s.Note != "" {
		w.Printf("  note: %s\n", s.Note)
	}
	if s.Endpoints == 0 {
		return
	}
	t := &term.Table{Indent: "  "}
	for _, r := range rows {
		t.Row(Verdict(r.Allowed), r.Src.Name, "->", r.Dst.Name, netip.AddrPortFrom(r.Flow.Dst, r.Flow.DstPort))
	}
	t.Print(w)
}

// serviceText names a port of a service, and the address where it was asked about by that.
func serviceText(s view.Service) string {
	port := fmt.Sprintf("%d/%s", s.Port, s.Protocol)
	if s.PortName != "" {
		port = s.PortName + " (" + port + ")"
	}
	text := "service " + s.Name + " port " + port
	if s.Address.IsValid() {
		text = s.Address.String() + " is " + text
	}
	return text
}

// reachedOf returns how much of a service is reached. From one source each flow is an endpoint.
func reachedOf(s view.Service, allowed, flows int, one bool) string {
	if s.Endpoints == 0 {
		return "it has no endpoints"
	}
	unit, rest := term.Count(flows, "endpoint"), ""
	if more := s.Endpoints - flows; !one {
		unit = term.Count(flows, "flow") + " to its endpoints"
	} else if more > 0 {
		rest = fmt.Sprintf("; %d more of the other address family", more)
	}
	switch {
	case allowed == flows && flows > 1:
		return "permitted to all " + unit + rest
	case allowed == flows:
		return "permitted to its one endpoint" + rest
	case allowed == 0:
		return "permitted to none of " + unit + rest
	}
	return fmt.Sprintf("permitted to %d of %s%s", allowed, unit, rest)
}
