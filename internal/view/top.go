package view

import (
	"time"

	"github.com/sluice-net/sluice/api"
)

// Decided is how many packets a rule of a policy has decided since the dataplane started: first
// packets of flows or all packets, depending on the dataplane.
type Decided struct {
	Renderer string     `json:"renderer"`
	Origin   api.Origin `json:"origin,omitzero"` // zero for rules without a policy
	Action   api.Action `json:"action"`
	Packets  uint64     `json:"packets"`
}

// Traffic sums up the verdicts that an agent has kept and that pass the filters of a Watch.
type Traffic struct {
	// Since is when the oldest of them was; zero when there is none.
	Since time.Time `json:"since,omitzero"`
	// Missed is how many packets were not reported in that time, whatever the filters.
	Missed uint64       `json:"missed,omitempty"`
	Pods   []PodTraffic `json:"pods"`
	Drops  []Drop       `json:"drops"`
	// More is how many rows are left out, those with the fewest packets.
	More int `json:"more,omitempty"`
}

// PodTraffic is the verdicts at the interfaces of a pod.
type PodTraffic struct {
	Pod       api.PodID `json:"pod,omitzero"` // zero where no pod is known
	Denied    uint64    `json:"denied"`
	Permitted uint64    `json:"permitted"`
	Last      time.Time `json:"last"`
}

// Drop is denied packets with the same ends, destination port and cause.
type Drop struct {
	Src       string        `json:"src"` // a pod or an address; empty where the dataplane only counts
	Dst       string        `json:"dst"`
	Port      uint16        `json:"port,omitempty"` // of the destination
	Protocol  api.Protocol  `json:"protocol"`
	Pod       api.PodID     `json:"pod,omitzero"` // at whose interface
	Direction api.Direction `json:"direction"`
	Reason    string        `json:"reason"`
	Origins   []api.Origin  `json:"origins,omitempty"`
	Packets   uint64        `json:"packets"`
	Last      time.Time     `json:"last"`
}
