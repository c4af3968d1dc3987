package oracle_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/internal/oracle"
)

func TestTheJSONOfAVerdictIsStable(t *testing.T) {
	v := explained(t, dbPorts(`{port: 1}`), "203.0.113.9 > shop/db 2/tcp")
	got, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(verdictJSON, string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var back oracle.Verdict
	if err := json.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v, back, sameAddr); diff != "" {
		t.Errorf("after reading it back -want +got:\n%s", diff)
	}
}

// verdictJSON is what other programs read; a change of it breaks them.
const verdictJSON = `{
 "flow": {
  "src": "203.0.113.9",
  "dst": "10.0.1.3",
  "protocol": "tcp",
  "dstPort": 2
 },
 "src": {
  "addr": "203.0.113.9"
 },
 "dst": {
  "pod": "shop/db"
 },
 "allowed": false,
 "egress": {
  "direction": "egress",
  "applies": false,
  "isolated": false,
  "allowed": true,
  "reason": "open: not the address of a pod"
 },
 "ingress": {
  "direction": "ingress",
  "applies": true,
  "isolated": true,
  "allowed": false,
  "reason": "isolated by shop/p0",
  "subjects": [
   {
    "pod": "shop/db",
    "isolated": true,
    "allowed": false
   }
  ],
  "policies": [
   {
    "policy": {
     "kind": "NetworkPolicy",
     "namespace": "shop",
     "name": "p0"
    },
    "subject": "shop/db",
    "policyTypes": [
     "Ingress"
    ],
    "allows": false,
    "rules": [
     {
      "index": 0,
      "matched": false,
      "remote": "203.0.113.9",
      "peerMatched": true,
      "peers": [
       {
        "term": "from anywhere",
        "matched": true
       }
      ],
      "portMatched": false,
      "ports": [
       {
        "term": "port 1/tcp",
        "matched": false,
        "why": "2"
       }
      ]
     }
    ]
   }
  ],
  "deciding": [
   {
    "policy": {
     "kind": "NetworkPolicy",
     "namespace": "shop",
     "name": "p0"
    },
    "direction": "ingress",
    "rule": -1
   }
  ]
 },
 "changes": [
  {
   "kind": "add-port",
   "direction": "ingress",
   "origins": [
    {
     "policy": {
      "kind": "NetworkPolicy",
      "namespace": "shop",
      "name": "p0"
     },
     "direction": "ingress",
     "rule": 0
    }
   ],
   "flips": true,
   "text": "add \"port 2/tcp\" to ingress rule 0 of shop/p0"
  },
  {
   "kind": "add-rule",
   "direction": "ingress",
   "origins": [
    {
     "policy": {
      "kind": "NetworkPolicy",
      "namespace": "shop",
      "name": "p0"
     },
     "direction": "ingress",
     "rule": -1
    }
   ],
   "flips": true,
   "text": "add a rule \"from 203.0.113.9, port 2/tcp\" to ingress of a policy that selects shop/db"
  }
 ]
}`
