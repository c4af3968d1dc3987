package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"time"
)

// Types of chunks (RFC 9260, section 3.2), and the parameter that has a cookie.
const (
	chunkInit       = 1
	chunkInitAck    = 2
	chunkAbort      = 6
	chunkCookieEcho = 10
	chunkCookieAck  = 11
	stateCookie     = 7
)

const (
	headerLength = 12
	initLength   = 16 // of INIT and INIT ACK before their parameters
)

// packet is one with a single chunk.
type packet struct {
	from, to uint16
	tag      uint32 // verification tag
	chunk    byte
	value    []byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (p packet) marshal() []byte {
	b := binary.BigEndian.AppendUint16(nil, p.from)
	b = binary.BigEndian.AppendUint16(b, p.to)
	b = binary.BigEndian.AppendUint32(b, p.tag)
	b = append(b, 0, 0, 0, 0, p.chunk, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(4+len(p.value)))
	b = append(b, p.value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, castagnoli))
	return b
}

// parse returns the first chunk of a packet, if the packet is a whole one.
func parse(b []byte) (packet, bool) {
	if len(b) < headerLength+4 {
		return packet{}, false
	}
	sum := binary.LittleEndian.Uint32(b[8:])
	whole := append([]byte(nil), b...)
	clear(whole[8:headerLength])
	length := int(binary.BigEndian.Uint16(b[14:]))
	if sum != crc32.Checksum(whole, castagnoli) || length < 4 || headerLength+length > len(b) {
		return packet{}, false
	}
	return packet{
		binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint32(b[4:]), b[12], b[headerLength+4 : headerLength+length],
	}, true
}

// initiation returns what INIT and INIT ACK say: a tag, a window, one stream each way, a first
// number.
func initiation(tag uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, tag)
	b = binary.BigEndian.AppendUint32(b, 1<<16)
	b = append(b, 0, 1, 0, 1)
	return binary.BigEndian.AppendUint32(b, 1)
}

// cookieOf returns the cookie of an INIT ACK.
func cookieOf(value []byte) []byte {
	for b := value[min(initLength, len(value)):]; len(b) >= 4; {
		length := int(binary.BigEndian.Uint16(b[2:]))
		if length < 4 || length > len(b) {
			return nil
		}
		if binary.BigEndian.Uint16(b) == stateCookie {
			return b[4:length]
		}
		b = b[min((length+3)/4*4, len(b)):]
	}
	return nil
}

// protocol names SCTP in the family of an address.
func protocol(ip net.IP) string {
	if ip.To4() != nil {
		return "ip4:132"
	}
	return "ip6:132"
}

// associate sets up an association, and ends it. It returns os.ErrDeadlineExceeded when there is no
// answer.
func associate(ip net.IP, port uint16, timeout time.Duration) error {
	c, err := net.DialIP(protocol(ip), nil, &net.IPAddr{IP: ip})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // the program ends
	own := packet{from: uint16(49152 + rand.N(16384)), to: port}
	tag := 1 + rand.N(uint32(1<<32-1))
	deadline := time.Now().Add(timeout)
	ack, err := ask(c, packet{own.from, own.to, 0, chunkInit, initiation(tag)}, chunkInitAck, tag, deadline)
	if err != nil {
		return err
	}
	cookie := cookieOf(ack.value)
	if len(cookie) == 0 {
		return fmt.Errorf("INIT ACK of %s:%d has no cookie", ip, port)
	}
	own.tag = binary.BigEndian.Uint32(ack.value)
	if _, err := ask(c, packet{own.from, own.to, own.tag, chunkCookieEcho, cookie}, chunkCookieAck, tag, deadline); err != nil {
		return err
	}
	own.chunk = chunkAbort
	_, err = c.Write(own.marshal())
	return err
}

// ask sends a packet until there is an answer.
func ask(c *net.IPConn, p packet, answer byte, tag uint32, deadline time.Time) (packet, error) {
	buffer := make([]byte, 2048)
	for {
		if _, err := c.Write(p.marshal()); err != nil {
			return packet{}, err
		}
		again := time.Now().Add(300 * time.Millisecond)
		if again.After(deadline) {
			again = deadline
		}
		if err := c.SetReadDeadline(again); err != nil {
			return packet{}, err
		}
		for {
			n, _, err := c.ReadFromIP(buffer)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				if !again.Before(deadline) {
					return packet{}, err
				}
				break
			}
			if err != nil {
				return packet{}, err
			}
			got, whole := parse(buffer[:n])
			if whole && got.from == p.to && got.to == p.from && got.tag == tag && got.chunk == answer {
				return got, nil
			}
		}
	}
}

// listen starts to answer on a port, in both families where there are both.
func listen(port string) error {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("port %q: %w", port, err)
	}
	c4, err := net.ListenIP("ip4:132", nil)
	if err != nil {
		return err
	}
	go serve(c4, uint16(n))
	if c6, err := net.ListenIP("ip6:132", nil); err == nil {
		go serve(c6, uint16(n))
	}
	return nil
}

// serve answers as one that keeps no state (RFC 9260, section 5.1.3): the cookie is both tags.
func serve(c *net.IPConn, port uint16) {
	buffer := make([]byte, 2048)
	for {
		n, from, err := c.ReadFromIP(buffer)
		if err != nil {
			continue // an ICMP error about an answer
		}
		got, whole := parse(buffer[:n])
		if !whole || got.to != port {
			continue
		}
		answer := packet{from: port, to: got.from}
		switch {
		case got.chunk == chunkInit && len(got.value) >= initLength:
			own := 1 + rand.N(uint32(1<<32-1))
			answer.tag, answer.chunk = binary.BigEndian.Uint32(got.value), chunkInitAck
			answer.value = append(initiation(own), 0, stateCookie, 0, 12)
			answer.value = append(answer.value, got.value[:4]...)
			answer.value = binary.BigEndian.AppendUint32(answer.value, own)
		case got.chunk == chunkCookieEcho && len(got.value) == 8 && got.tag == binary.BigEndian.Uint32(got.value[4:]):
			answer.tag, answer.chunk = binary.BigEndian.Uint32(got.value), chunkCookieAck
		default:
			continue
		}
		_, _ = c.WriteToIP(answer.marshal(), from) // the client repeats the request
	}
}
