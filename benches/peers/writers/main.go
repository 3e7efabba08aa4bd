// writers lets many writers each put a key of their own into one ConfigMap, as a program on client-go does it: read,
// change, update, and again on a conflict, with one of client-go's two recommended backoffs.
package main

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"

	"stratum.ciq.com/peers/cluster"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file")
	namespace := flag.String("namespace", "default", "namespace of the ConfigMap")
	name := flag.String("name", "writers", "the ConfigMap; it has to exist")
	count := flag.Int("writers", 50, "writers at the same time")
	rounds := flag.Int("rounds", 1, "keys each of them puts, one after another")
	backoff := flag.String("backoff", "DefaultRetry", "DefaultRetry or DefaultBackoff")
	flag.Parse()

	steps := map[string]wait.Backoff{"DefaultRetry": retry.DefaultRetry, "DefaultBackoff": retry.DefaultBackoff}
	chosen, known := steps[*backoff]
	if !known {
		cluster.Check(fmt.Errorf("backoff %q is neither DefaultRetry nor DefaultBackoff", *backoff))
	}
	config := cluster.Config(*kubeconfig)
	requests := cluster.Counted(config)
	client, err := kubernetes.NewForConfig(config)
	cluster.Check(err)
	maps := client.CoreV1().ConfigMaps(*namespace)
	// The first connection is not what is measured.
	_, err = maps.Get(context.Background(), *name, meta.GetOptions{})
	cluster.Check(err)
	requests.Store(0)

	var failures atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for writer := range *count {
		all.Go(func() {
			for round := range *rounds {
				key := fmt.Sprintf("writer-%d-%d", writer, round)
				if put(maps, *name, key, chosen) != nil {
					failures.Add(1)
				}
			}
		})
	}
	all.Wait()
	cluster.Print(map[string]any{
		"commits":  *count * *rounds,
		"failures": failures.Load(),
		"requests": requests.Load(),
		"seconds":  time.Since(began).Seconds(),
	})
}

func put(maps typed.ConfigMapInterface, name, key string, backoff wait.Backoff) error {
	return retry.RetryOnConflict(backoff, func() error {
		current, err := maps.Get(context.Background(), name, meta.GetOptions{})
		if err != nil {
			return err
		}
		if current.Data == nil {
			current.Data = map[string]string{}
		}
		current.Data[key] = "here"
		_, err = maps.Update(context.Background(), current, meta.UpdateOptions{})
		return err
	})
}
