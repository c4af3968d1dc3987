module github.com/sluice-net/sluice/tests/tools/netpolapi

go 1.26.0

require sigs.k8s.io/network-policy-api v0.2.0 // indirect
