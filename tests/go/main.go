// go-redis's clients of Redis Cluster and of Sentinel at a cluster whose primaries die.
//
// usage: clients GROUP HOST:PORT...
//
// Group: of the client of Sentinel. tests/src/client_program.rs says what this program prints, and when
// it ends.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// Between two keys of a writer, and behind one that was not acknowledged.
	pause = 3 * time.Millisecond
	rest  = 20 * time.Millisecond
	// Tries of a read at the end, which fails while no server leads.
	tries = 500
	// How long a server that stands still holds a request. It is asked twice.
	readTimeout = 500 * time.Millisecond
)

// What all writers share.
var (
	out     = bufio.NewWriter(os.Stdout)
	outLock sync.Mutex
	isOver  atomic.Bool
	longest atomic.Int64
)

func say(format string, values ...any) {
	outLock.Lock()
	defer outLock.Unlock()
	fmt.Fprintf(out, format+"\n", values...)
	out.Flush()
}

// Notes how long a request has taken.
func timed(request func()) {
	begin := time.Now()
	request()
	took := time.Since(begin).Milliseconds()
	for {
		known := longest.Load()
		if took <= known || longest.CompareAndSwap(known, took) {
			return
		}
	}
}

// Sets one key after the other, each once.
type writer struct {
	name, tag    string
	client       redis.UniversalClient
	acknowledged []int
}

func (w *writer) key(number int) string {
	return fmt.Sprintf("{%s}:%s:%d", w.tag, w.name, number)
}

func (w *writer) write() {
	ctx := context.Background()
	for number := 0; !isOver.Load(); number++ {
		key, value := w.key(number), strconv.Itoa(number)
		var err error
		timed(func() { err = w.client.Set(ctx, key, value, 0).Err() })
		if err != nil {
			say("failed %s %d %s", w.name, number, strings.ReplaceAll(err.Error(), "\n", " "))
			time.Sleep(rest)
			continue
		}
		w.acknowledged = append(w.acknowledged, number)
		say("set %s %d", w.name, number)
		var found string
		timed(func() { found, err = w.client.Get(ctx, key).Result() })
		if err == redis.Nil || err == nil && found != value {
			say("stale %s %d", w.name, number)
		}
		time.Sleep(pause)
	}
}

// Reads all that was acknowledged.
func (w *writer) look() {
	for _, number := range w.acknowledged {
		var found string
		var err error
		for try := 0; try < tries; try++ {
			found, err = w.client.Get(context.Background(), w.key(number)).Result()
			if err == nil || err == redis.Nil {
				break
			}
			time.Sleep(rest)
		}
		if found != strconv.Itoa(number) {
			say("lost %s %d", w.name, number)
		}
	}
	say("found %s %d", w.name, len(w.acknowledged))
}

func main() {
	group, servers := os.Args[1], os.Args[2:]
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers, ReadTimeout: readTimeout})
	sentinel := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: group, SentinelAddrs: servers, ReadTimeout: readTimeout,
	})
	writers := []*writer{
		// The slots of b and c are low ones, those of a and d are high ones.
		{name: "cluster-a", tag: "a", client: cluster},
		{name: "cluster-b", tag: "b", client: cluster},
		{name: "cluster-c", tag: "c", client: cluster},
		{name: "cluster-d", tag: "d", client: cluster},
		{name: "sentinel-b", tag: "b", client: sentinel},
		{name: "sentinel-c", tag: "c", client: sentinel},
	}
	each := func(act func(*writer)) *sync.WaitGroup {
		var all sync.WaitGroup
		for _, of := range writers {
			all.Add(1)
			go func(of *writer) {
				defer all.Done()
				act(of)
			}(of)
		}
		return &all
	}
	load := each((*writer).write)
	_, _ = io.Copy(io.Discard, os.Stdin)
	isOver.Store(true)
	load.Wait()
	each((*writer).look).Wait()
	say("end %d", longest.Load())
}
