// Package services resolves services to endpoints: from the reflected services, pods and slices, as
// Kubernetes does.
//
//	svc/NS/NAME:PORT, or an address of a service -> Targets -> Endpoints
//
// It is pure. Policy does not depend on its results: they serve queries about services.
package services
