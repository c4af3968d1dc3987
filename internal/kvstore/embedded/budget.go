package embedded

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/peer"
)

// How many bytes clients may write: an agent reports at most every few seconds, in some kilobytes.
// A start, or a node with many interfaces, may take as much as fits in a budget at once.
const (
	clientBytes = 1 << 20  // in the budget of an address
	clientRate  = 64 << 10 // that come back per second
	allBytes    = 32 << 20 // in the budget of all clients
	allRate     = 512 << 10

	// Costs in bytes besides the key and the value.
	writeCost = 1 << 10  // of each key that is written or deleted
	leaseCost = 64 << 10 // of a lease
	renewCost = 4 << 10  // of its renewal

	// manyAddresses is how many budgets are kept before those that are full are forgotten.
	manyAddresses = 1024
)

// budget is how many bytes may still be written. It fills with time.
type budget struct {
	left float64
	at   time.Time // when that was so
}

// fill adds what has come back until now.
func (b *budget) fill(now time.Time, rate, most float64) {
	b.left = min(most, b.left+max(0, now.Sub(b.at).Seconds())*rate)
	b.at = now
}

// budgets are those of the addresses of clients, and one of all clients together. The certificate
// says nothing of a client: all agents may share one.
type budgets struct {
	mu  sync.Mutex
	all *budget
	of  map[string]*budget
}

// spend takes bytes from both budgets, if they have as many.
func (b *budgets) spend(address string, bytes int, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of, b.all = map[string]*budget{}, &budget{allBytes, now}
	}
	own := b.of[address]
	if own == nil {
		b.forget(now)
		own = &budget{clientBytes, now}
		b.of[address] = own
	}
	own.fill(now, clientRate, clientBytes)
	b.all.fill(now, allRate, allBytes)
	if own.left < float64(bytes) || b.all.left < float64(bytes) {
		return false
	}
	own.left -= float64(bytes)
	b.all.left -= float64(bytes)
	return true
}

// forget drops the budgets that are full again, once there are many.
func (b *budgets) forget(now time.Time) {
	if len(b.of) < manyAddresses {
		return
	}
	for address, own := range b.of {
		if own.fill(now, clientRate, clientBytes); own.left == clientBytes {
			delete(b.of, address)
		}
	}
}

// addressOf returns the address of a client, without its port.
func addressOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return p.Addr.String()
	}
	return host
}
