// Package services says where packets to services go: from the reflected services, pods and
// slices to endpoints, as Kubernetes makes them.
//
//	svc/NS/NAME:PORT, or an address of a service -> Targets -> Endpoints
//
// It is pure. No policy depends on its answers: they are for those who ask about a service.
package services
