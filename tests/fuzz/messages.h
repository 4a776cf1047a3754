// Messages of the wire made from a fuzzer's choices, whatever fields the schema has: a new field is fuzzed
// from the day it is declared.
#pragma once

#include "google/protobuf/message.h"
#include "gpuprobe/v1/wire.pb.h"
#include "tests/fuzz/choices.h"

namespace gpuprobe::fuzz {

// Sets fields of `message`, nested ones too. Columns of a record kind are mostly of one length.
void Fill(Choices& choices, google::protobuf::Message& message);

// Hello of process `index` (rank, pid) of a job of four on one host.
v1::Hello PlainHello(int index);
// Defines what small ids refer to: names, threads, kernel sites, devices, a communicator.
v1::Batch Definitions();
// A batch, filled, whose sequence number and times mostly go on from the ones before.
v1::Batch NextBatch(Choices& choices, uint64_t sequence);

}  // namespace gpuprobe::fuzz
